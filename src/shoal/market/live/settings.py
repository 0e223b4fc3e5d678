"""The settings of the market: where the file is, and what stands in it. A server without a market loads no numpy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from shoal.base.validation import problems
from shoal.contract.manifest.values import Duration, DurationOrZero, Memory
from shoal.core import Invalid
from shoal.extension import Section

if TYPE_CHECKING:
    from shoal.market.live.provider import Listing


class MarketSection(Section):
    """Instances that are rented for jobs."""

    file: str = Field("", description="what may be rented, from whom, and for how much: a YAML file")


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ListedOffer(Strict):
    """One line of `offers`."""

    region: str
    zone: str = ""
    instance: str
    accelerator: str
    accelerators: int = Field(1, ge=1)
    spot: bool = False
    usd_per_hour: float = Field(gt=0, description="the price on demand; of spot the most that is paid")
    cpus: int = Field(1, ge=1)
    memory: Memory = 1 << 30

    def listing(self, provider: str) -> Listing:
        from shoal.market.history import Offer
        from shoal.market.live.provider import Listing

        offer = Offer(provider, self.region, self.zone, self.instance, self.accelerator, self.accelerators, self.spot)
        return Listing(offer, self.usd_per_hour, self.cpus, self.memory)


class SimulatedSection(Strict):
    """A simulated provider. Each call takes `answer_s`, half of it before its effect and half after."""

    history: tuple[Path, ...] = ()
    cloud: str = Field("aws", description="the provider of the history's offers")
    path: Path | None = Field(None, description="the file of its instances [HOME/market-simulated.db]")
    speed: float = Field(1.0, gt=0, description="how many times as fast as the clock its time goes")
    start: float | None = Field(None, description="where in the history time begins, in Unix seconds [its first price]")
    launch: DurationOrZero = Field(60.0, description="until an instance is ready")
    notice: DurationOrZero = Field(120.0, description="from the notice of a spot instance to its end")
    answer_s: float = Field(0.0, ge=0)


class AwsSection(Strict):
    region: str
    image: str = Field(description="the AMI")
    subnets: dict[str, str] = Field(default={}, description="by zone")
    security_groups: tuple[str, ...] = ()
    key_name: str = ""
    profile: str = Field("", description="the instance profile")
    user_data: Path | None = Field(None, description="a script that joins the cluster, run at the first boot")
    endpoint: str = Field("", description="another address of the API")


def _words(value: Any) -> Any:
    return tuple(value.split()) if isinstance(value, str) else value


class CommandSection(Strict):
    words: Annotated[tuple[str, ...], BeforeValidator(_words), Field(min_length=1)]
    timeout: Duration = 60.0


class MarketFile(Strict):
    """`market.yaml`."""

    provider: Literal["simulated", "aws", "command"]
    offers: tuple[ListedOffer, ...] = Field(min_length=1)
    caps: dict[str, Annotated[float, Field(ge=0)]] = Field(description="dollars by tenant, over all time")
    policy: str = "markov"
    speeds: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default={}, description="by kind, or kind and number: `v100:8`"
    )
    every: Duration = Field(10.0, description="between looks at the provider")
    tick: Duration = Field(600.0, description="between decisions")
    lease: Duration = Field(3600.0, description="for so long an instance is paid ahead; then it ends by itself")
    notice: Duration = Field(120.0, description="before its time is over a job is asked to leave")
    retry: Duration = Field(600.0, description="an offer that was refused is not asked for again so soon")
    fleet: str = Field(
        "", pattern=r"^[a-z0-9-]{0,40}$", description="in the tag of all instances of this server [made of its key]"
    )
    simulated: SimulatedSection = Field(default_factory=lambda: SimulatedSection.model_validate({}))
    aws: AwsSection | None = None
    command: CommandSection | None = None

    @field_validator("policy")
    @classmethod
    def _known(cls, name: str) -> str:
        from shoal.market.policy.names import NAMES

        if name not in NAMES:
            raise ValueError(f"must be one of {', '.join(NAMES)}, not {name!r}")
        return name

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.provider != "simulated" and getattr(self, self.provider) is None:
            raise ValueError(f"provider {self.provider} needs the section `{self.provider}`")
        if self.notice * 2 > self.lease:
            raise ValueError("`lease` must be twice `notice` at least")
        seen = [(one.zone or one.region, one.instance, one.spot) for one in self.offers]
        if len(set(seen)) < len(seen):
            raise ValueError("an offer is listed twice")
        spot, lasting = ({one.accelerator for one in self.offers if one.spot is kind} for kind in (True, False))
        if spot - lasting:
            names = ", ".join(sorted(spot - lasting))
            raise ValueError(f"`offers` has {names} on spot only: a deadline is kept by an offer on demand, list one")
        return self

    @property
    def time_speed(self) -> float:
        """How many times as fast as the clock the provider's time goes."""
        return self.simulated.speed if self.provider == "simulated" else 1.0

    def listings(self) -> list[Listing]:
        cloud = self.simulated.cloud if self.provider == "simulated" else self.provider
        return [one.listing(cloud) for one in self.offers]


def read_file(path: Path) -> MarketFile:
    """Raises Invalid with every problem."""
    import yaml

    try:
        return MarketFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise Invalid(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise Invalid("is not text", where=str(path), hint="a YAML file in UTF-8 is meant") from error
    except yaml.YAMLError as error:
        raise Invalid(f"is not YAML: {error}", where=str(path)) from error
    except ValidationError as error:
        found = tuple(Invalid(one.what, where=f"{path}: {one.where or 'the file'}") for one in problems(error))
        raise Invalid(found[0].what, where=found[0].where, problems=found) from None


class MarketJob(Strict):
    """A job's section `extensions: {market: ...}`: it runs on instances that are rented for it."""

    work: Duration = Field(description="its run time on an accelerator of speed 1")
    deadline: Duration = Field(description="from its submission to its end")
    launch: DurationOrZero = Field(300.0, description="from an order until the job works")
    lost: DurationOrZero = Field(0.0, description="work that is lost when an instance is taken away")
    state_gb: float = Field(0.0, ge=0)
    data_gb: float = Field(0.0, ge=0)
    home: str = Field("", description="the region of state and data")
