"""Self-contained HTML pages: one file that opens anywhere, without a server, a script or a network.

A page is made of values, so that nobody has to write HTML::

    from orchestrator.app.html.page import Facts, HtmlPage, Link, Moment, Notice, Output, Section, Table, render_page
    from orchestrator.app.html.diff import DiffBlock, DiffPair

    page = HtmlPage(
        title="Report of pull request 12",
        subtitle="octocat/hello",
        sections=[
            Section("Verdict", [
                Notice("ok", "Two new tests fail without the change and pass with it."),
                Facts([("cost", money(usd)), ("checked", Moment(now)), ("pull request", Link("#12", url))]),
            ]),
            Section("Tests", [Table(["test", "result", "seconds"], rows, numeric={2})]),
            Section("The change", [DiffBlock(diff), DiffPair(model_diff, real_diff, "the model", "the person")]),
            Section("Output", [Output("pytest, exit code 1", text)]),
        ],
    )
    path.write_text(render_page(page), encoding="utf-8")

Every `str` in these values may be other people's text: it is cleaned of control and bidirectional characters and
escaped when the page is written. There is no way to pass HTML in. A `Link` to anything but `http` and `https` becomes
plain text. Money and numbers are formatted by the caller, with the functions that the command line uses too
(`orchestrator.app.words`: `money`, `amounts`, `counted`, `duration`). A time is given as `Moment`, and shown in the
zone that `render_page` is given.
"""
