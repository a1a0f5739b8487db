"""Links this checkout's `verl/` into the installed verl, for editors: only there do pyright and Pylance look for it.

One decision: a link is made only where nothing is. Folders that upstream lacks are linked whole, other files one by
one, and an upstream file is never touched, so `--remove` has nothing to restore. Running programs do not need the
links: they find our modules by `verl_overlay`, linked or not.

    python scripts/link_overlay.py             # link, and drop links to files that are gone
    python scripts/link_overlay.py --remove    # leave the installed verl as upstream made it
"""

import argparse
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

OURS = Path(__file__).resolve().parent.parent / "verl"


def installed_verl() -> Path:
    """The folder of the installed verl.

    Raises:
        SystemExit: when verl is not installed for this Python.
    """
    folder = Path(sysconfig.get_path("purelib")) / "verl"
    if not (folder / "__init__.py").is_file():
        raise SystemExit(f"link_overlay: error: no verl in {folder.parent}: run `bash install.sh --dev`")
    return folder


def wanted_links(ours: Path, theirs: Path) -> Iterator[tuple[Path, Path]]:
    """Yields (link, target) for what lies in `ours` and not in `theirs`, from the top down."""
    for target in sorted(ours.iterdir()):
        link = theirs / target.name
        if target.name == "__pycache__":
            continue
        if target.is_dir() and link.is_dir() and not link.is_symlink():
            yield from wanted_links(target, link)
        elif link.is_symlink() or not link.exists():
            yield link, target


def existing_links(ours: Path, theirs: Path) -> Iterator[Path]:
    """Yields links in `theirs` that point into a checkout: this one, or an earlier place of it."""
    for link in theirs.rglob("*"):
        if link.is_symlink() and (ours in link.readlink().parents or not link.exists()):
            yield link


def link(ours: Path, theirs: Path) -> int:
    """Makes the links and removes stale ones; returns how many there are."""
    links = dict(wanted_links(ours, theirs))
    for path in existing_links(ours, theirs):
        if links.get(path) != path.readlink():
            path.unlink()
    for path, target in links.items():
        if path.is_symlink() and path.readlink() != target:
            path.unlink()
        if not path.is_symlink():
            path.symlink_to(target)
    return len(links)


def remove(ours: Path, theirs: Path) -> int:
    """Removes the links; returns how many there were."""
    links = list(existing_links(ours, theirs))
    for path in links:
        path.unlink()
    return len(links)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--remove", action="store_true", help="remove the links instead")
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    options = parser.parse_args()
    theirs = installed_verl()
    try:
        count = remove(OURS, theirs) if options.remove else link(OURS, theirs)
    except OSError as error:
        print(f"link_overlay: error: {error}: {theirs} must be writable", file=sys.stderr)
        return 1
    if not options.quiet:
        print(f"link_overlay: {count} links {'removed from' if options.remove else 'in'} {theirs}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
