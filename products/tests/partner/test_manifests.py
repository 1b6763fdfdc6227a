"""Manifests of every kind, as they are written."""

from __future__ import annotations

import pytest

from millpond_products.partner import manifests, repositories

POM = """<project><parent><artifactId>above</artifactId><version>9</version></parent>
<artifactId>shop</artifactId><version>1.2</version><description>A shop</description>
<dependencies><dependency>
  <groupId>org.springframework.boot</groupId>
  <artifactId>spring-boot-starter</artifactId></dependency></dependencies></project>"""
GO = "module example.com/shop\n\nrequire github.com/x/y v1.0.0\nrequire (\n\tgithub.com/labstack/echo/v4 v4.1.0\n)"
POETRY = '[tool.poetry]\nname = "p"\nversion = "1"\n[tool.poetry.dependencies]\npython = "^3"\ndjango = "5"\n'
SWIFT = 'let p = Package(name: "Lamp", dependencies: [.package(url: "https://github.com/vapor/vapor.git", from: "4")])'
CASES = [
    ("package.json", '{"name": "a", "version": "1", "dependencies": {"next": "1"}}', "npm", "a", ["next"]),
    ("pyproject.toml", '[project]\nname = "p"\ndependencies = ["flask[async]>=3 ; x"]\n', "pypi", "p", ["flask"]),
    ("pyproject.toml", POETRY, "pypi", "p", ["django"]),
    ("requirements-dev.txt", "# a\nfastapi==1 # b\n-e .\n--hash=x\n\n", "pypi", "", ["fastapi"]),
    ("Cargo.toml", '[package]\nname = "c"\n[dependencies]\naxum = "1"\n', "cargo", "c", ["axum"]),
    ("go.mod", GO, "go", "example.com/shop", ["github.com/x/y", "github.com/labstack/echo/v4"]),
    ("Gemfile", "source 'x'\ngem 'rails', '~> 8'\n  gem \"puma\"\n", "rubygems", "", ["rails", "puma"]),
    (
        "composer.json",
        '{"name": "v/p", "require": {"laravel/framework": "1"}}',
        "packagist",
        "v/p",
        ["laravel/framework"],
    ),
    ("pom.xml", POM, "maven", "shop", ["org.springframework.boot:spring-boot-starter"]),
    ("build.gradle.kts", 'dependencies {\n  implementation("a.b:c:1")\n}\n', "maven", "", ["a.b:c"]),
    ("Package.swift", SWIFT, "swift", "Lamp", ["https://github.com/vapor/vapor.git"]),
    ("Podfile", "target 'Lamp' do\n  pod 'Alamofire', '5'\nend\n", "cocoapods", "Lamp", ["Alamofire"]),
    (
        "pubspec.yaml",
        "name: lamp\ndependencies:\n  flutter:\n    sdk: flutter\n  http: ^1\n",
        "pub",
        "lamp",
        ["flutter", "http"],
    ),
    ("Shop.csproj", '<Project><PackageReference Include="Dapper" Version="2"/></Project>', "nuget", "", ["Dapper"]),
]


@pytest.mark.parametrize(("path", "text", "ecosystem", "name", "dependencies"), CASES)
def test_each_is_read(path: str, text: str, ecosystem: str, name: str, dependencies: list[str]) -> None:
    found = manifests.read(f"some/folder/{path}", text)
    assert manifests.is_manifest(path)
    assert (found.ecosystem, found.name, found.dependencies) == (ecosystem, name, dependencies)


@pytest.mark.parametrize("path", sorted({case[0] for case in CASES}))
@pytest.mark.parametrize(
    "text", ["", "\x00", "[" * 9_000, "{}", "[]", "null", '{"dependencies": [1, null, {}]}', "<" * 9_000]
)
def test_what_is_broken_says_nothing(path: str, text: str) -> None:
    assert manifests.read(path, text).name == ""


NAMED = {"pyproject.toml": '[project]\nname = "p"\n', "Cargo.toml": '[package]\nname = "p"\n'}
DEEP = ".".join("a" * 1_500)
LONG = ".".join("a" * 200)


@pytest.mark.parametrize("path", NAMED)
@pytest.mark.parametrize(
    "line", [f"[{DEEP}]", f"{DEEP} = 1", f"x = {{ {DEEP} = 1 }}", f"[{LONG}]", "# " + "x" * 70_000]
)
def test_toml_that_would_be_read_for_minutes_says_nothing(path: str, line: str) -> None:
    """What is read goes with the square of the dots: a hundred kilobytes of them took a minute."""
    assert manifests.read(path, NAMED[path]).name == "p"
    assert manifests.read(path, f"{NAMED[path]}{line}\n").name == ""
    many = "".join(f"# {n:030}\n" for n in range(3_000))
    assert manifests.read(path, f"{NAMED[path]}{many}").name == ""


@pytest.mark.parametrize("name", ["a." * 64_000 + "b/c", "a.b/" * 32_000])
def test_a_line_that_nobody_would_write_says_nothing(name: str) -> None:
    """An expression that tries every dot took half a minute for such a one."""
    found = manifests.read(
        "go.mod", f"module shop\nrequire {name} v1.0.0\n\t{name}\nrequire x.y/z v1.0.0 // indirect\n"
    )
    assert (found.name, found.dependencies) == ("shop", ["x.y/z"])


def test_of_very_many_names_the_first_are_looked_at() -> None:
    empty = "".join(f'"{" " * n}": 1, ' for n in range(1_000))
    assert manifests.read("package.json", f'{{"dependencies": {{{empty}"z": 1}}}}').dependencies == []
    assert manifests.read("requirements.txt", "\n" * 100_000 + "flask").dependencies == []


def test_of_an_old_toml_with_dots_in_its_names_all_is_read() -> None:
    text = '[tool.poetry]\nname = "p"\ndependencies.django = "5"\n[tool.x.y.z]\nurl = "https://a.b.c.d/e.f"\n'
    assert manifests.read("pyproject.toml", text).dependencies == ["django"]


def test_a_listing_is_counted_as_it_comes_and_few_of_its_files_are_kept() -> None:
    lines = [f"100644 blob {n:040x} {7:7}\td{n % 50}/package.json\0" for n in range(5_000)]
    lines += [f"100644 blob {n:040x} {7:7}\t{'deep/' * 40}{n}.py\0" for n in range(5_000)]
    lines += [f"100644 blob {1:040x} {7:7}\tmillpond-2/events.py\0", f"160000 commit {2:040x}       -\tother\0"]
    listing = repositories.Listing()
    content = "".join(lines).encode()
    for start in range(0, len(content), 997):
        listing._take(content[start : start + 997])
    assert (listing.files, listing.bytes, listing.spoken) == (10_002, 70_007, {"Python": 35_007})
    assert (len(listing.manifests), listing.clients) == (40, {"millpond-2/events.py": f"{1:040x}"})
    assert {entry.path for entry in listing.manifests} == {"d0/package.json"}


def test_a_path_without_end_is_passed_over() -> None:
    listing = repositories.Listing()
    for piece in (b"100644 blob aa 1\t", *([b"x" * 60_000] * 50), b"\0", b"100644 blob bb 2\tmain.go\0"):
        listing._take(piece)
        assert len(listing._rest) <= 200_000
    assert (listing.files, listing.spoken) == (1, {"Go": 2})


def test_frameworks_are_guessed_by_what_is_depended_on() -> None:
    found = [manifests.read(path, text) for path, text, *_ in CASES]
    assert repositories.frameworks(found) == [
        "Next.js",
        "Flask",
        "Django",
        "FastAPI",
        "Axum",
        "Echo",
        "Rails",
        "Laravel",
        "Spring Boot",
        "Flutter",
    ]


@pytest.mark.parametrize(
    ("text", "title", "paragraph"),
    [
        ("# One\n\nTwo words.\n", "One", "Two words."),
        ("One\n===\n\n- a list\n\n> a quote\n\nTwo **words** [here](x).", "One", "Two words here."),
        ("<h1 align=center>One</h1>\n\n<p>Two words.</p>\n", "One", "Two words."),
        ("![x](y)\n\n```\n# not a title\n```\n\nTwo words.", "", "Two words."),
        ("<!-- # no -->\n\n## One\nTwo words.", "One", "Two words."),
        ("", "", ""),
    ],
)
def test_a_readme_has_a_title_and_a_first_paragraph(text: str, title: str, paragraph: str) -> None:
    assert repositories._readme({"README.md": text, "LICENSE": "x"}) == (title, paragraph)
