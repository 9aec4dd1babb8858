"""Names and values of secrets, and how a known secret is hidden."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.redaction import (
    REPLACEMENT,
    Credential,
    SettingPiece,
    is_ordinary,
    is_secret,
    is_secret_name,
    looks_random,
    masked,
    parts_of_arguments,
    parts_of_setting,
    parts_to_hide,
    secret_forms,
    without_bytes,
    without_secrets,
)
from orchestrator.engine.environments.commands import EnvPolicy, child_variables
from orchestrator.engine.models.keys import secret_values
from tests.tables import table

# From the documentation of the tools named by them.
SECRET = """
OTEL_EXPORTER_OTLP_HEADERS OTEL_EXPORTER_OTLP_TRACES_HEADERS ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN OPENAI_API_KEY OPENAI_KEY GEMINI_API_KEY GOOGLE_API_KEY MISTRAL_API_KEY
COHERE_API_KEY GROQ_API_KEY XAI_API_KEY DEEPSEEK_API_KEY HF_TOKEN HUGGING_FACE_HUB_TOKEN WANDB_API_KEY KAGGLE_KEY
REPLICATE_API_TOKEN LANGCHAIN_API_KEY PINECONE_API_KEY TAVILY_API_KEY BRAVE_API_KEY SERPAPI_KEY AZURE_OPENAI_KEY
GITHUB_TOKEN GH_TOKEN GITHUB_PAT GH_PAT GH_ENTERPRISE_TOKEN GITLAB_TOKEN GITLAB_PRIVATE_TOKEN GITEA_TOKEN
BITBUCKET_APP_PASSWORD BITBUCKET_STEP_OIDC_TOKEN BITBUCKET_SSH_KEY_FILE AZURE_DEVOPS_EXT_PAT SYSTEM_ACCESSTOKEN
CI_JOB_TOKEN CI_JOB_JWT CI_JOB_JWT_V2 CI_REGISTRY_PASSWORD CI_DEPLOY_PASSWORD CI_REPOSITORY_TOKEN
ACTIONS_RUNTIME_TOKEN ACTIONS_ID_TOKEN_REQUEST_TOKEN INPUT_TOKEN INPUT_GITHUB_TOKEN BUILDKITE_AGENT_ACCESS_TOKEN
CIRCLE_TOKEN TRAVIS_API_TOKEN DRONE_RPC_SECRET JENKINS_API_TOKEN TEAMCITY_PASSWORD APPVEYOR_API_TOKEN
AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_SECURITY_TOKEN AWS_WEB_IDENTITY_TOKEN_FILE
AWS_CONTAINER_AUTHORIZATION_TOKEN GOOGLE_APPLICATION_CREDENTIALS GCP_SA_KEY GCLOUD_SERVICE_KEY GCP_SERVICE_ACCOUNT
FIREBASE_TOKEN FIREBASE_SERVICE_ACCOUNT AZURE_CLIENT_SECRET AZURE_CREDENTIALS AZURE_STORAGE_KEY AZURE_STORAGE_SAS
AZURE_STORAGE_CONNECTION_STRING AZURE_STORAGE_SAS_TOKEN ARM_CLIENT_SECRET ARM_ACCESS_KEY ARM_SAS_TOKEN OS_PASSWORD
DIGITALOCEAN_ACCESS_TOKEN SPACES_SECRET_ACCESS_KEY LINODE_CLI_TOKEN HCLOUD_TOKEN VULTR_API_KEY SCW_SECRET_KEY
CLOUDFLARE_API_TOKEN CF_API_KEY FLY_API_TOKEN HEROKU_API_KEY NETLIFY_AUTH_TOKEN VERCEL_TOKEN RAILWAY_TOKEN
RENDER_API_KEY VERCEL_DEPLOY_HOOK NETLIFY_BUILD_HOOK_URL SUPABASE_SERVICE_ROLE_KEY SUPABASE_ACCESS_TOKEN
NPM_TOKEN NODE_AUTH_TOKEN NPM_AUTH NPM_OTP npm_config__auth npm_config__authToken NPM_CONFIG_OTP YARN_NPM_AUTH_TOKEN
PYPI_TOKEN PYPI_PASSWORD TWINE_PASSWORD UV_PUBLISH_TOKEN UV_INDEX_INTERNAL_PASSWORD POETRY_PYPI_TOKEN_PYPI
POETRY_HTTP_BASIC_FOO_PASSWORD HATCH_INDEX_AUTH CARGO_REGISTRY_TOKEN GEM_HOST_API_KEY RUBYGEMS_API_KEY
BUNDLE_GITHUB__COM BUNDLE_GEMS__CONTRIBSYS__COM NUGET_API_KEY NUGET_KEY COMPOSER_AUTH MAVEN_GPG_PASSPHRASE
MAVEN_PASSWORD SONATYPE_PASSWORD OSSRH_TOKEN ORG_GRADLE_PROJECT_signingInMemoryKey GRADLE_PUBLISH_SECRET
ORG_GRADLE_PROJECT_mavenCentralPassword HEX_API_KEY HOMEBREW_GITHUB_API_TOKEN COCOAPODS_TRUNK_TOKEN
DOCKER_PASSWORD DOCKER_PASS DOCKERHUB_TOKEN DOCKER_AUTH_CONFIG QUAY_PASSWORD REGISTRY_AUTH KUBECONFIG KUBE_TOKEN
HELM_REPO_PASSWORD VAULT_TOKEN CONSUL_HTTP_TOKEN CONSUL_HTTP_AUTH NOMAD_TOKEN TF_TOKEN_app_terraform_io
TF_VAR_db_password PULUMI_ACCESS_TOKEN ANSIBLE_VAULT_PASSWORD ANSIBLE_VAULT_PASSWORD_FILE SOPS_AGE_KEY
RESTIC_PASSWORD BORG_PASSPHRASE RCLONE_CONFIG_PASS PASSPHRASE GPG_PRIVATE_KEY GPG_PASSPHRASE SSH_PRIVATE_KEY
SSH_PASSPHRASE SSHPASS SSH_KEY DEPLOY_KEY SIGNING_KEY ENCRYPTION_KEY RAILS_MASTER_KEY SECRET_KEY_BASE
DJANGO_SECRET_KEY FLASK_SECRET_KEY APP_KEY APP_SECRET JWT_SECRET JWT_SIGNING_KEY NEXTAUTH_SECRET AUTH_SECRET
SESSION_SECRET COOKIE_SECRET AUTH0_CLIENT_SECRET AUTH_SALT NONCE_SALT WALLET_MNEMONIC SEED_PHRASE
DB_PWD DB_PASS DB_PASSWORD DBPASSWORD dbPassword PGPASSWORD PGPASSFILE MYSQL_PWD MYSQL_ROOT_PASSWORD REDISCLI_AUTH
REDIS_PASSWORD MONGO_INITDB_ROOT_PASSWORD RABBITMQ_DEFAULT_PASS MINIO_ROOT_PASSWORD MINIO_SECRET_KEY
ELASTIC_PASSWORD NEO4J_AUTH SENTRY_DSN SENTRY_AUTH_TOKEN DATABASE_PASSWORD_1 PASSWORD PASSWORD2 LDAP_BIND_PW
STRIPE_KEY STRIPE_SECRET_KEY STRIPE_API_KEY STRIPE_WEBHOOK_SECRET PAYPAL_CLIENT_SECRET TWILIO_AUTH_TOKEN
SENDGRID_API_KEY MAILGUN_API_KEY SMTP_PASS SMTP_PASSWORD SLACK_TOKEN SLACK_BOT_TOKEN SLACK_WEBHOOK_URL
SLACK_SIGNING_SECRET DISCORD_TOKEN DISCORD_WEBHOOK TELEGRAM_BOT_TOKEN TEAMS_WEBHOOK_URI TRELLO_KEY JIRA_API_TOKEN
DD_API_KEY DD_APP_KEY NEW_RELIC_LICENSE_KEY SNYK_TOKEN CODECOV_TOKEN COVERALLS_REPO_TOKEN SONAR_TOKEN PERCY_TOKEN
CHROMATIC_PROJECT_TOKEN CYPRESS_RECORD_KEY BROWSERSTACK_ACCESS_KEY SAUCE_ACCESS_KEY TURBO_TOKEN NX_CLOUD_ACCESS_TOKEN
TS_AUTHKEY NGROK_AUTHTOKEN OP_SERVICE_ACCOUNT_TOKEN DOPPLER_TOKEN INFISICAL_TOKEN MAXMIND_LICENSE_KEY
MAPBOX_ACCESS_TOKEN ALGOLIA_ADMIN_KEY FASTLANE_PASSWORD FASTLANE_SESSION MATCH_PASSWORD
MATCH_GIT_BASIC_AUTHORIZATION APP_STORE_CONNECT_API_KEY_CONTENT ANDROID_KEYSTORE_BASE64 KEYSTORE_PASSWORD
APIKEY apiKey api-key TOKEN token KEY AUTH NETRC CERT_PFX_BASE64 X_CREDENTIAL MY_SECRET npm_token PULLWRIGHT_API_KEY
""".split()  # noqa: SIM905  a table

HARMLESS = """
PATH HOME USER LOGNAME SHELL PWD OLDPWD LANG LANGUAGE LC_ALL TERM COLORTERM TMPDIR TZ HOSTNAME SHLVL MAIL EDITOR
VISUAL PAGER LESS DISPLAY WAYLAND_DISPLAY XDG_RUNTIME_DIR XDG_SESSION_ID XDG_SESSION_TYPE SESSION_MANAGER
SSH_AUTH_SOCK SSH_ASKPASS SSH_CONNECTION SSH_TTY GPG_TTY GPG_KEY GNUPGHOME KEYBOARD KEYBOARD_LAYOUT KEYMAP MONKEY
TURKEY HOCKEY KEYCLOAK_HOST KEYNOTE WHISKEY KEYWORD KEYWORDS PRIMARY_KEY FOREIGN_KEY SORT_KEY PARTITION_KEY
CACHE_KEY PUBLIC_KEY SSH_PUBLIC_KEY SSH_HOST_KEY STRIPE_PUBLISHABLE_KEY HOT_KEY COMPOSE_KEY KEY_REPEAT KEY_BINDINGS
KEY_LENGTH KEY_SIZE KEY_PREFIX ARROW_KEYS SONAR_PROJECT_KEY JIRA_ISSUE_KEY AUTHOR AUTHORS GITHUB_ACTOR AUTHORITY
AUTHENTICATED AUTH_TYPE AUTH_URL AUTH_DOMAIN AUTH_ENABLED AUTH_METHOD AUTH0_DOMAIN OAUTH_CLIENT_ID NEXTAUTH_URL
TOKENIZERS_PARALLELISM TOKENIZER TOKENIZER_PATH DETOKENIZER TOKENISE MAX_TOKENS PULLWRIGHT_MAX_TOKENS NUM_TOKENS
TOKENS_PER_MINUTE MAX_OUTPUT_TOKENS CONTEXT_TOKENS EOS_TOKEN PAD_TOKEN TOKEN_LIMIT TOKEN_COUNT TOKEN_URL TOKEN_TYPE
TOKEN_TTL SECRETARY SECRETARIAT SECRET_NAME AWS_SECRET_NAME SECRET_VERSION PASSENGER_APP_ENV PASSENGER_ROOT
PASSIVE PASSAGE COMPASS COMPASS_HOME BYPASS BYPASS_CACHE PASSWORD_MIN_LENGTH PASSWORD_POLICY PASSWORD_PROMPT
PASSTHROUGH TOX_PASS_ENV FIRST_PASS LOW_PASS PATIENT PATCH PATTERN SPATIAL COMPAT PATHEXT MANPATH PYTHONPATH
COOKIE_DOMAIN COOKIE_SECURE BASIC_AUTH_USER SERVICE_ACCOUNT_EMAIL WEBHOOK_PORT JWT_ALGORITHM KEY_VAULT_NAME
KEYRINGS_ALTPATH SAS_HOME OTP_VERSION SALTING PEMBROKE PEPPERONI CREDIT CREDO ACCREDITED KEYS_PER_PAGE_COUNT
GITHUB_SHA GITHUB_REF GITHUB_REPOSITORY GITHUB_RUN_ID GITHUB_SERVER_URL GITHUB_WORKSPACE RUNNER_OS RUNNER_TEMP CI
CI_COMMIT_SHA CI_PIPELINE_ID NODE_ENV NODE_OPTIONS NODE_PATH PYTHONHASHSEED VIRTUAL_ENV CONDA_PREFIX CARGO_HOME
GOPATH GOFLAGS JAVA_HOME MAVEN_OPTS GRADLE_OPTS RUSTFLAGS CC CXX CFLAGS LDFLAGS MAKEFLAGS DEBIAN_FRONTEND
DOCKER_HOST AWS_REGION AWS_PROFILE AWS_DEFAULT_OUTPUT GOOGLE_CLOUD_PROJECT AZURE_TENANT_ID AZURE_CLIENT_ID
PGHOST PGUSER PGDATABASE REDIS_HOST MYSQL_DATABASE TWINE_USERNAME DOCKER_USERNAME TWILIO_ACCOUNT_SID PIP_INDEX_URL
HTTP_PROXY NO_PROXY SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE BUNDLE_PATH BUNDLE_GEMFILE BUNDLE_JOBS
COLUMNS LINES NO_COLOR FORCE_COLOR LS_COLORS HISTFILE WINDOWID DBUS_SESSION_BUS_ADDRESS DESKTOP_SESSION
""".split()  # noqa: SIM905  a table

VALUE = "q7Zr2VbN9xKp4TmW"


def test_the_table_is_large_enough_to_stand_for_its_class() -> None:
    assert len(set(SECRET)) > 200
    assert len(set(HARMLESS)) > 150
    assert set(SECRET).isdisjoint(HARMLESS)


@table("name", SECRET)
def test_a_secret_is_kept_from_commands_and_from_texts(name: str) -> None:
    assert is_secret_name(name)
    assert is_secret_name(name.lower() if name.isupper() else name)
    assert child_variables({name: VALUE}, EnvPolicy.FILTERED) == {}
    assert secret_values({name: VALUE}) == [VALUE]


@table("name", HARMLESS)
def test_what_only_sounds_like_one_is_no_secret(name: str) -> None:
    assert not is_secret_name(name)
    assert secret_values({name: VALUE}) == []


@given(st.sampled_from(SECRET), st.sampled_from(("APP", "ACME", "TF_VAR", "CI", "PROD", "INPUT", "X2")))
def test_whose_secret_it_is_changes_nothing(name: str, owner: str) -> None:
    if not name.startswith("BUNDLE_"):  # a form of Bundler's own
        assert is_secret_name(f"{owner}_{name}")
        assert is_secret_name(f"{owner.lower()}-{name}")


@given(st.sampled_from([*SECRET, *HARMLESS]), st.text(st.characters(codec="ascii"), min_size=1, max_size=40))
def test_what_no_text_may_show_is_never_given_to_a_command(name: str, value: str) -> None:
    if parts_to_hide(name, value):
        assert child_variables({name: value}, EnvPolicy.FILTERED) == {} or name in {"PATH", "HOME"}


@table(
    "value",
    [
        "1",
        "true",
        "main",
        "",
        "postgres",
        "Password",
        "required",
        "localhost",
        "https://auth.example.com/login",
        "/run/secrets/token",
        "~/.ssh/id_ed25519",
        "./keys/dev.pem",
        "https://localhost:8080/",
        "/home/runner/key.json",
    ],
)
def test_an_ordinary_value_stays_in_texts_whatever_its_name_is(value: str) -> None:
    assert is_ordinary(value)
    assert parts_to_hide("API_TOKEN", value) == []
    assert child_variables({"API_TOKEN": value}, EnvPolicy.FILTERED) == {}


@table(
    "value",
    [
        "correct-horse-battery",
        "84739274",
        "hunter2hunter2",
        "/8hK2/vQe91+xZ04mTqLr7wYb3NdUc6sFpJgAi5",
        VALUE,
        "https://hooks.example.com/T01A2B3C4/b9x8Y7z6",
        "two words",
        "a=b;c=d;",
    ],
)
def test_any_other_value_is_hidden(value: str) -> None:
    assert parts_to_hide("API_TOKEN", value) == [value]


@table(
    ("value", "found"),
    [
        ("postgres://app:q7Zr2VbN9x@db.example.com/app", ["q7Zr2VbN9x"]),
        ("postgres://app:q7Zr2%2FVbN9x@db/app", ["q7Zr2%2FVbN9x", "q7Zr2/VbN9x"]),
        ("redis://:q7Zr2VbN9x@cache:6379/0", ["q7Zr2VbN9x"]),
        ("https://3f2e1d0c9b8a7f6e5d4c3b2a@sentry.example.com/1", ["3f2e1d0c9b8a7f6e5d4c3b2a"]),
        ("a=https://u:q7Zr2VbN9x@one b=https://u:p4TmWq7Zr2@two", ["q7Zr2VbN9x", "p4TmWq7Zr2"]),
        ("postgres://postgres:postgres@localhost/app", []),
        ("ssh://deployer@git.example.com/repo", []),
        ("https://host/a@b", []),
        ("https://twentycharacters-of1@example.com/", ["twentycharacters-of1"]),
        ("https://nineteencharacters1@example.com/", []),  # as long as names of people are
    ],
)
def test_of_an_address_the_password_is_hidden(value: str, found: list[str]) -> None:
    assert parts_to_hide("SITE", value) == found


@table(
    ("value", "found"),
    [
        ("jdbc:postgresql://db/app?user=a&password=larkspurmeadow", ["larkspurmeadow"]),
        ("--user app --password larkspurmeadow --retry 3", ["larkspurmeadow"]),
        ("-v --api-token=larkspurmeadow", ["larkspurmeadow"]),
        ("-Xmx2g -Djavax.net.ssl.trustStorePassword='larkspurmeadow'", ["larkspurmeadow"]),
        ("Authorization: Bearer larkspurmeadow", ["larkspurmeadow"]),
        ("X-Api-Key: larkspurmeadow", ["larkspurmeadow"]),
        (
            '{"user": "app", "apiKey":"larkspurmeadow", "db_password": "willowcreek"}',
            ["larkspurmeadow", "willowcreek"],
        ),
        ('{"maxTokens": 100000000, "tokenType": "bearer-jwt", "key": "production"}', []),
        ("Driver=x;Server=db;Uid=app;Pwd=larkspurmeadow;", ["larkspurmeadow"]),
        ("-Xmx2g -Djavax.net.ssl.trustStorePassword=changeit", []),
        ("--token-file /run/secrets/token --max-tokens 100000000 --key production", []),
        ("--password=$DB_PASSWORD --token ${{ secrets.TOKEN }} --secret $(pass show x)", []),
        ("https://keys.example.com:8443/tokens", []),
        ("PWD=/home/me/project SORT_KEY=created_at", []),
        ("--password --verbose --token", []),
        ("It resets the password: instructions follow", []),
        ("-H 'Authorization: Bearer larkspurmeadow'", ["larkspurmeadow"]),
        ("https://a.example/?password=-larkspur-meadow", ["-larkspur-meadow"]),
        ("https://a.example/?password=p%6Fstgres", ["p%6Fstgres"]),
        ("--passphrase-key larkspurmeadow", []),  # a key may be a word
        (" password: instructions", ["instructions"]),  # a header, in whatever blanks
    ],
)
def test_what_stands_behind_the_name_of_a_secret_is_hidden(value: str, found: list[str]) -> None:
    assert parts_to_hide("APP_OPTIONS", value) == found
    assert is_secret("APP_OPTIONS", value) is bool(found)


def test_the_words_of_a_function_of_the_shell_are_ordinary() -> None:
    assert parts_to_hide("BASH_FUNC_login%%", "() { local password=interactive; }") == []


def test_an_address_of_a_webhook_is_no_place_if_a_part_of_it_is_no_word() -> None:
    value = "https://hooks.example.com/services/zebraquartzmellowfinch"
    assert parts_to_hide("BUILD_WEBHOOK_URL", value) == [value]


@table(
    ("value", "found"),
    [
        ("x-team=q7Zr2VbN9x", ["q7Zr2VbN9x"]),
        (
            "a=1,authorization=Basic%20dXNlcjpwYXNz",
            ["Basic%20dXNlcjpwYXNz", "Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"],
        ),
        ("authorization=Bearer q7Zr2VbN9x , b=p4TmWq7Zr2", ["Bearer q7Zr2VbN9x", "q7Zr2VbN9x", "p4TmWq7Zr2"]),
        ("q7Zr2VbN9x,a=1", ["q7Zr2VbN9x"]),
    ],
)
def test_each_header_for_a_collector_is_found(value: str, found: list[str]) -> None:
    assert parts_to_hide("OTEL_EXPORTER_OTLP_HEADERS", value) == [value, *found]


@given(st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=8, max_size=30))
def test_a_password_in_an_address_is_found_however_it_is_quoted(password: str) -> None:
    if not is_ordinary(password):
        assert password in parts_to_hide("SITE", f"amqp://app:{quote(password, safe='')}@mq:5672/x")


def test_a_key_file_is_a_secret_whatever_it_is_called() -> None:
    pem = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIK\n-----END EC PRIVATE KEY-----"
    for value in (pem, '{"type": "service_account", "private_key": "x"}'):
        assert parts_to_hide("CONFIG", value) == [value]
        assert child_variables({"CONFIG": value}, EnvPolicy.FILTERED) == {}


def test_a_credential_shows_no_password() -> None:
    shown = repr(Credential("example.com", "bot", "q7Zr2VbN9xKp4TmW"))
    assert "q7Zr" not in shown
    assert REPLACEMENT in shown


@table(
    ("host", "authority", "expected"),
    [
        ("example.com", "EXAMPLE.com", True),
        ("example.com", "example.com:8443", True),
        ("example.com:8443", "Example.com:8443", True),
        ("example.com:8443", "example.com", False),
        ("example.com:8443", "example.com:443", False),
        ("example.com", "example.com.evil.net", False),
        ("example.com", "8443:example.com", False),
    ],
)
def test_a_credential_is_for_its_server_alone(host: str, authority: str, *, expected: bool) -> None:
    assert Credential(host, "bot", "q7Zr2VbN9xKp4TmW").suits(authority) is expected


def test_a_password_is_removed_in_the_form_of_a_header_too() -> None:
    said = "got q7Zr2VbN9xKp4TmW, sent Basic Ym90OnE3WnIyVmJOOXhLcDRUbVc= to it"
    assert Credential("example.com", "bot", "q7Zr2VbN9xKp4TmW").redact(said) == (
        f"got {REPLACEMENT}, sent Basic {REPLACEMENT} to it"
    )


@table(
    ("value", "shown"),
    [
        ("k" * 20, "set"),
        ("k" * 17 + "last", "set, ends in …last"),
        (f"  {'k' * 17}last\n", "set, ends in …last"),
        ("-----BEGIN KEY-----\nk\n-----END KEY-----", "set"),
    ],
)
def test_of_a_long_key_its_owner_sees_the_end(value: str, shown: str) -> None:
    assert masked(value) == shown


@given(st.text(min_size=8, max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_no_form_of_a_secret_stays(secret: str, before: str, after: str) -> None:
    raw = secret.encode()
    for form in (secret, quote(raw, safe=""), json.dumps(secret)[1:-1], base64.b64encode(raw).decode()):
        text = f"{before}\0{form}\0{after}"
        said = without_secrets(text, secret)
        assert without_bytes(text.encode(), secret).decode() == said
        assert f"\0{form}\0" not in said


def test_a_short_value_is_left_where_it_is() -> None:
    assert without_secrets("the key is none", "none") == "the key is none"


# Settings that are made of pieces, as of a server's header or a command line.

KEY = "zeta-43-omega-17"
MADE = "aB3dE5gH7jK9mN1pQ3rS5"


@table(
    ("name", "pieces", "hidden"),
    [
        ("X-Note", [SettingPiece(KEY, variable="MY_TOKEN")], [KEY]),
        ("X-Note", [SettingPiece(KEY, variable="MY_PLACE")], []),
        ("api_key", [SettingPiece(KEY)], [KEY]),
        ("api_key", [SettingPiece(KEY, is_default=True)], []),
        ("api_key", [SettingPiece("left-4711-"), SettingPiece("right-0815")], ["left-4711-right-0815"]),
        ("api_key", [SettingPiece(KEY), SettingPiece("for all 99 of you", is_default=True)], [KEY]),
        ("api_key", [SettingPiece("for all 99 of you", is_default=True), SettingPiece(KEY)], [KEY]),
        ("Authorization", [SettingPiece("Bearer "), SettingPiece(KEY)], [f"Bearer {KEY}", KEY]),
        ("X-Note", [SettingPiece(f"a note {MADE}")], [MADE]),
        ("X-Note", [SettingPiece("a note"), SettingPiece(" of no secret")], []),
        ("X-Note", [SettingPiece("commit 0a1b2c3d4e5f6a7b8c9d0e1f")], []),  # no capitals, as in an id of git
        ("X-Note", [], []),
    ],
)
def test_the_parts_of_a_setting(name: str, pieces: list[SettingPiece], hidden: list[str]) -> None:
    assert parts_of_setting(name, pieces) == hidden


@table(
    ("words", "hidden"),
    [
        (["--api-key", KEY], [KEY]),
        (["--api-key", "--verbose"], []),
        (["--verbose", "--api-key", KEY, "rest"], [KEY]),
        (["--region", "eu-central-17"], []),
        ([f"--api-key={KEY}"], [KEY]),
        ([f"SERVICE_TOKEN={KEY}", "serve"], [KEY]),
        ([f"Authorization: Bearer {KEY}"], [f"Bearer {KEY}", KEY]),
        ([f"https://host.example/?signature={KEY}"], [KEY]),
        (["serve", "--port", "8080"], []),
        ([], []),
    ],
)
def test_the_parts_of_a_command_line(words: list[str], hidden: list[str]) -> None:
    assert parts_of_arguments([[SettingPiece(word)] for word in words]) == hidden


@table(
    ("url", "hidden"),
    [
        ("https://a.example/f?sig=s1gned-for-you", ["s1gned-for-you"]),
        ("https://a.example/f?SIG=s1gned-for-you", ["s1gned-for-you"]),
        ("https://a.example/f?x=1&X-Amz-Signature=s1gned-for-you", ["s1gned-for-you"]),
        ("https://a.example/f?sig=signed-for-you", []),  # words only
        ("https://a.example/f?sig=signed-for-all-of-u", []),  # 19 characters; no word has more
        ("https://a.example/f?sig=signed-for-all-of-it", ["signed-for-all-of-it"]),
        ("https://a.example/f?signed=s1gned-for-you", []),
        ("https://a.example/f?q=sig", []),
        ("https://a.example/f?token_of_day=sunshineword", []),  # it ends in no word for a secret
        ("https://a.example/f?token_of_day=sunshine7word", ["sunshine7word"]),
    ],
)
def test_a_signature_in_a_url_is_what_somebody_made(url: str, hidden: list[str]) -> None:
    assert parts_to_hide("PLACE", url) == hidden


@table(
    ("text", "is_random"),
    [
        (b"abcdefgh1j2k3", True),  # five times another kind follows
        (b"abcdefgh1j2k", False),
        (b"aB1cD2ef", True),  # eight different ones
        (b"aB1aB1aB1aB1", False),
    ],
)
def test_what_looks_as_made_by_a_program(text: bytes, *, is_random: bool) -> None:
    assert looks_random(text) is is_random


@table("name", [("API_KEY=",), ("API", "_KEY="), ("A", "PI", "_KEY=")])
def test_the_value_behind_a_name_may_come_from_another_piece(name: tuple[str, ...]) -> None:
    pieces = [*map(SettingPiece, name), SettingPiece(KEY, variable="MY_PLACE")]
    assert parts_of_arguments([pieces, [SettingPiece("serve")]]) == [KEY]


@table(
    ("secret", "forms"),
    [
        ('pa ss/wö"rd', ['pa ss/wö"rd', "pa%20ss%2Fw%C3%B6%22rd", 'pa ss/w\\u00f6\\"rd', "cGEgc3Mvd8O2InJk"]),
        ("plainword", ["plainword", "cGxhaW53b3Jk"]),
        ("eight888", ["eight888", "ZWlnaHQ4ODg="]),
        ("seven77", []),
    ],
)
def test_the_forms_in_which_a_server_may_repeat_a_secret(secret: str, forms: list[str]) -> None:
    assert [form.decode() for form in secret_forms(secret)] == forms
