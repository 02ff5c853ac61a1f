"""URLs of git repositories: which are taken, and which of them an operator allows."""

import pytest

from turnwright_executor.domain.git_urls import check_ref, git_url, git_urls


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c 'touch /tmp/x'",
        "-u",
        "--upload-pack=touch",
        "git@127.0.0.1:team/shop.git",
        "ssh://-oProxyCommand=touch/team/shop.git",
        "http://robot:swordfish@127.0.0.1/team/shop.git",
        "URL/team/../other/shop.git",
        "URL/team/%2e%2e/other/shop.git",
        "URL/team%2fshop.git",
        "URL/team/shop.git?service=x",
        "URL/team/shop.git#x",
        "URL/team/shop.git\n",
        "URL/team//shop.git",
        "URL/team/%25.git",
        "URL/t\u00e9am/shop.git",
        "file://127.0.0.1/etc",
        "https://" + "a" * 3000,
    ],
)
def test_a_url_that_is_not_plain_is_refused(url):
    with pytest.raises(ValueError, match="must be a URL"):
        git_url(url.replace("URL", "http://127.0.0.1:80"))


@pytest.mark.parametrize(
    ("allowed", "url", "is_allowed"),
    [
        ("https://git.example.com/team", "https://git.example.com/team/shop.git", True),
        ("https://git.example.com/team/", "https://GIT.example.com/team/shop.git/", True),
        ("https://git.example.com", "https://git.example.com/team/my%20shop", True),
        ("https://git.example.com/team", "https://git.example.com/teams/shop", False),
        ("https://git.example.com/team", "https://git.example.com/other/shop", False),
        ("https://git.example.com/team", "http://git.example.com/team/shop", False),
        ("https://git.example.com/team", "https://git.example.com:8443/team/shop", False),
        ("https://git.example.com", "https://git.example.com.evil.org/shop", False),
        ("https://a.org,ssh://git@b.org/x", "ssh://git@b.org/x/shop", True),
        ("ssh://git@b.org/x", "ssh://Git@b.org/x/shop", False),
        ("ssh://git@b.org/x", "ssh://b.org/x/shop", False),
        ("file:///srv/git", "file:///srv/git/shop", True),
        ("file:///srv/git", "file:///srv/other", False),
        ("", "https://git.example.com/shop", False),
    ],
)
def test_what_begins_like_an_allowed_url_is_allowed(allowed, url, is_allowed):
    assert any(map(git_url(url).is_below, git_urls(allowed))) is is_allowed


@pytest.mark.parametrize(
    ("url", "name"),
    [("https://a.org/x/shop.git", "shop"), ("https://a.org/x/.git", "project"), ("https://a.org/my%20shop", "my-shop")],
)
def test_a_directory_has_the_name_of_the_repository(url, name):
    assert git_url(url).name == name


@pytest.mark.parametrize("ref", ["-u", "--upload-pack=x", "a b", "a..b", "a\nb", "a*", "a:b", "@{1}", "a" * 256])
def test_a_name_that_is_none_of_a_branch_is_refused(ref):
    with pytest.raises(ValueError, match="branch or a tag"):
        check_ref(ref)
    assert check_ref("team/fix-1.2") == "team/fix-1.2"
