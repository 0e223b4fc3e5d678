"""Sites: which folder here is which folder on another machine, and how that machine is reached."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from shoal.base.files import write_whole
from shoal.core import Invalid, NotFound


@dataclass(frozen=True, slots=True)
class Site:
    """`mounts` maps a folder here to the folder there; `host` is what `ssh` is given; `ssh` is the program and its
    options. With a `port` a permanent proxy is reached there by TLS instead; its certificate and the user's token are
    in files. `memory_bytes` and `cpu_s` limit each command there."""

    name: str
    host: str
    mounts: Mapping[str, str]
    ssh: tuple[str, ...] = ("ssh",)
    memory_bytes: int | None = None
    cpu_s: int | None = None
    port: int | None = None
    certificate: str | None = None
    token_file: str | None = None

    def holds(self, path: str) -> bool:
        return any(is_below(path, mount) for mount in self.mounts)


def is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


@dataclass(frozen=True)
class Sites:
    """The sites of one home, in `HOME/shell/sites.json`."""

    folder: Path
    sites: Mapping[str, Site] = field(default_factory=dict)

    @classmethod
    def of(cls, home: Path) -> Sites:
        """Raises Invalid where the file cannot be understood."""
        folder = shell_folder(home)
        path = folder / "sites.json"
        try:
            told = json.loads(path.read_text())
            found = {
                one["name"]: Site(**{**one, "ssh": tuple(one["ssh"]), "mounts": dict(one["mounts"])}) for one in told
            }
        except FileNotFoundError:
            return cls(folder)
        except (ValueError, TypeError, KeyError) as error:
            raise Invalid(f"the sites cannot be read: {error}", where=str(path)) from error
        return cls(folder, found)

    def add(self, site: Site) -> Sites:
        """Kept under its name; another with that name is replaced. Raises Invalid where a mount is another site's."""
        check(site)
        others = {name: one for name, one in self.sites.items() if name != site.name}
        for mount in site.mounts:
            for other in others.values():
                for taken in other.mounts:
                    if is_below(mount, taken) or is_below(taken, mount):
                        raise Invalid(
                            f"{mount} belongs to site {other.name}", where=mount, hint="remove that site first"
                        )
        return self._write({**others, site.name: site})

    def remove(self, name: str) -> Sites:
        """Raises NotFound."""
        if name not in self.sites:
            raise NotFound(f"there is no site {name!r}", hint=f"known: {', '.join(self.sites) or 'none'}")
        return self._write({key: one for key, one in self.sites.items() if key != name})

    def of_path(self, path: str) -> Site | None:
        return next((one for one in self.sites.values() if one.holds(path)), None)

    def prefixes(self) -> Sequence[str]:
        return sorted(mount for one in self.sites.values() for mount in one.mounts)

    def _write(self, sites: Mapping[str, Site]) -> Sites:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(self.folder / "sites.json", json.dumps([asdict(one) for one in sites.values()], indent=1) + "\n")
        return Sites(self.folder, sites)


def check(site: Site) -> None:
    """Raises Invalid for a name, a host or a path that cannot be."""
    if not site.name.replace("-", "").replace("_", "").isalnum() or len(site.name) > 63:
        raise Invalid("a site's name has letters, digits, - and _", where=site.name, hint="choose a short name")
    if not site.host or site.host.startswith("-"):
        raise Invalid(f"{site.host!r} is no host", where="HOST", hint="as `ssh` takes it: user@store")
    if site.port is not None and not (site.certificate and site.token_file):
        raise Invalid("a permanent proxy is reached with its certificate and a token", where="--port",
                      hint="--certificate FILE --token-file FILE")  # fmt: skip
    if not site.mounts:
        raise Invalid("a site has at least one folder", where="--at", hint="--at /mnt/data=/srv/data")
    for mount, root in site.mounts.items():
        for path in (mount, root):
            if not path.startswith("/") or len(path) < 2 or path.endswith("/") or "//" in path or "/../" in path + "/":
                raise Invalid(
                    f"{path!r} is no absolute path of a folder", where="--at", hint="--at /mnt/data=/srv/data"
                )
        if len(mount.encode()) > 250:
            raise Invalid("the path is longer than 250 bytes", where=mount, hint="mount it at a shorter path")


def shell_folder(home: Path) -> Path:
    """Where the agent of a home has its socket, its table and its logs."""
    return home / "shell"
