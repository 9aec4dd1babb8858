"""Names of files that steer machines and agents, wherever in a repository they are.

Not among them are files that run only as part of the program itself: Makefiles, Dockerfiles, `noxfile.py`,
`conftest.py`, source files. To change those is the work that is asked for; they are read in the pull
request like any code, and the checks of tests look at them. Text for people (README, CONTRIBUTING) is not
among them either. `more` adds what a repository thinks of otherwise.
"""

from __future__ import annotations

_WORKFLOW = "a workflow"
_OWNERS = "a file that names reviewers"
_LOCK = "a lock file"
_MANIFEST = "a manifest of dependencies"
_INSTRUCTIONS = "an instruction file of agents"
_GIT = "a file whose settings git follows"
_ROBOT = "settings of a robot"
_OURS = "settings of this program"

_BY_REASON = {
    _WORKFLOW: """
        action.yml action.yaml jenkinsfile azure-pipelines.yml azure-pipelines.yaml appveyor.yml appveyor.yaml
        bitbucket-pipelines.yml bitbucket-pipelines.yaml buildspec.yml buildspec.yaml circle.yml
        cloudbuild.yml cloudbuild.yaml cloudbuild.json codemagic.yaml bitrise.yml wercker.yml
        .travis.yml .drone.yml .cirrus.yml .woodpecker.yml .woodpecker.yaml .appveyor.yml
    """,
    _OWNERS: "codeowners owners owners_aliases",
    _LOCK: """
        npm-shrinkwrap.json pnpm-lock.yaml go.sum go.work.sum gems.locked package.resolved cartfile.resolved
        manifest.toml packages.lock.json cabal.project.freeze conda-lock.yml conda-lock.yaml deps.lock.json
        maven_install.json paket.lock buildscript-gradle.lockfile
    """,
    _MANIFEST: """
        package.json package.json5 package.yaml pnpm-workspace.yaml pnpmfile.js lerna.json bunfig.toml
        deno.json deno.jsonc jsr.json bower.json elm.json
        pyproject.toml setup.py setup.cfg pipfile environment.yml environment.yaml pixi.toml uv.toml pip.conf
        tox.ini mise.toml cargo.toml go.mod go.work gemfile gems.rb composer.json
        pom.xml build.gradle build.gradle.kts settings.gradle settings.gradle.kts gradle.properties
        gradle-wrapper.properties gradle-wrapper.jar libs.versions.toml build.sbt
        packages.config nuget.config global.json directory.build.props directory.build.targets
        directory.packages.props paket.dependencies vcpkg.json conanfile.txt conanfile.py
        package.swift podfile cartfile mix.exs rebar.config pubspec.yaml stack.yaml cabal.project
        project.clj deps.edn project.toml artifacts.toml flake.nix shell.nix default.nix
        module.bazel workspace workspace.bazel chart.yaml shard.yml brewfile cpanfile dune-project
    """,
    _INSTRUCTIONS: """
        agents.md agents.override.md agents.local.md agent.md claude.md claude.local.md gemini.md qwen.md
        codex.md copilot-instructions.md warp.md crush.md skill.md replit.md airules.md mcp.json
        opencode.json opencode.jsonc gemini-extension.json .mcp.json .aider.conf.yml
        .cursorrules .windsurfrules .clinerules .roorules .goosehints .rules .builderrules
    """,
    _GIT: ".gitattributes .gitmodules .gitconfig .lfsconfig",
    _ROBOT: """
        renovate.json renovate.json5 mergify.yml codecov.yml codecov.yaml sonar-project.properties
        release-please-config.json
    """,
    _OURS: "pullwright.toml",
}

NAMES: dict[str, str] = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}
"""Why a file of this name, in small letters, waits for a person."""

GLOBS: dict[str, tuple[str, ...]] = {
    _WORKFLOW: (
        ".github/workflows/**",
        ".github/actions/**",
        ".gitlab-ci*.yml",
        "*.gitlab-ci.yml",
        "jenkinsfile.*",
    ),
    _LOCK: ("*.lock", "*.lockb", "*.lockfile", "*-lock.json", "*.lock.hcl", "*.lock.yml", "pylock.*.toml"),
    _MANIFEST: (
        *("*requirements*.txt", "*requirements*.in", "requirements/**/*.txt", "requirements/**/*.in"),
        *(
            "*constraints*.txt",
            "*.gemspec",
            "*.podspec",
            "*.cabal",
            "*.opam",
            "*.rockspec",
            "environment.*.yml",
        ),
        *("*.csproj", "*.fsproj", "*.vbproj", "*.vcxproj", "*.sln", "*.slnx", "build.*.gradle", "*.gradle"),
        "*.gradle.kts",
    ),
    _INSTRUCTIONS: ("*.instructions.md", "*.prompt.md", "*.chatmode.md", "*.agent.md", "*.mdc"),
    _ROBOT: ("renovate-config.*",),
}
"""Patterns of such names, as in `.gitignore`, in small letters."""

HARMLESS_DOT_FILES = frozenset(
    {
        *(".gitignore", ".gitkeep", ".keep", ".mailmap", ".nojekyll", ".editorconfig"),
        *(".dockerignore", ".eslintignore", ".prettierignore", ".npmignore", ".helmignore", ".gcloudignore"),
    }
)
"""Every other file whose name begins with a dot waits: most name programs to run, plug-ins or servers."""
