"""Self-contained HTML pages: one file that opens anywhere, without a server, a script or a network.

A page is made of values, so that no code has to write HTML::

    from orchestrator.app.html.page import Facts, HtmlPage, Link, Moment, Notice, Output, Section, Table, render_page
    from orchestrator.app.html.page import DiffBlock, DiffPair

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
    path.write_text(render_page(page, redactor.redact), encoding="utf-8")

Every `str` in these values may be foreign text: control and bidirectional characters are removed, and the
text is escaped when the page is rendered. HTML cannot be passed in. A `Link` to an address other than `http`
and `https` becomes plain text. The caller formats money and numbers, with the functions that the command line
uses too (`orchestrator.app.words`: `money`, `amounts`, `counted`, `duration`). A time is a `Moment`, shown in
the time zone that is passed to `render_page`.
"""
