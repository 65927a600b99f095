"""What is named like a secret is not shown, wherever its name stands."""

from __future__ import annotations

import pytest

from incumbent.masking import is_secret, masked, masked_words


@pytest.mark.parametrize(
    "name",
    [
        *("PASSWORD", "DB_PASSWORD", "dbPassword", "DBPASS", "PGPASSWORD", "passwd", "API_KEY"),
        *("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "--api-token", "TOKENS", "STRIPE_KEYS"),
        *("CREDENTIALS", "tls.key", "PRIVATE_FILE", "BASIC_AUTH"),
    ],
)
def test_a_name_like_a_secrets(name: str) -> None:
    assert is_secret(name)
    assert masked(name, "hunter2") == "***"


@pytest.mark.parametrize("name", ["PORT", "PATH", "HOME", "KEYBOARD", "AUTHOR", "TOKENIZER", ""])
def test_a_name_like_anything_elses(name: str) -> None:
    assert not is_secret(name)
    assert masked(name, "8080") == "8080"


def test_a_password_within_a_url_is_masked_and_the_rest_is_not() -> None:
    shown = masked("DATABASE_URL", "postgres://web:hunter2@db:5432/shop")

    assert shown == "postgres://web:***@db:5432/shop"


def test_a_command_is_shown_without_its_secrets() -> None:
    words = ["web", "--password", "hunter2", "--token=hunter2", "API_KEY=hunter2", "--port", "80"]
    words += ["http://a:hunter2@b/", "--keys", "-v"]

    shown = masked_words(words)

    assert shown == [
        *("web", "--password", "***", "--token=***", "API_KEY=***", "--port", "80"),
        *("http://a:***@b/", "--keys", "-v"),
    ]
