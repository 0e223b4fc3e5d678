"""Where a user belongs: the table's decision, and how events name users."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.contract.events import EventKind
from shoal.contract.principal import Principal, User, submitter
from shoal.contract.records import Event
from shoal.core import Forbidden
from shoal.users import Kind, Role, Rule, RunAs, rule_for

NAMES = st.sampled_from(["alice", "bob", "staff", "docker", "DOM\\eve", "x@ldap"])
RULES = st.dictionaries(
    st.tuples(st.sampled_from(Kind), NAMES),
    st.tuples(st.sampled_from(["red", "blue", None]), st.sampled_from(Role), st.sampled_from(RunAs)),
).map(lambda found: {key: Rule(*key, *values, created_at=0.0) for key, values in found.items()})


@given(RULES, NAMES, st.frozensets(NAMES))
def test_a_user_has_the_own_rule_or_one_of_the_groups_that_agree(rules, user, groups) -> None:  # type: ignore[no-untyped-def]
    of_groups = [rules[Kind.GROUP, group] for group in groups if (Kind.GROUP, group) in rules]
    if (Kind.USER, user) not in rules and len({rule.tenant for rule in of_groups}) != 1:
        with pytest.raises(Forbidden, match="tenant") as refused:
            rule_for(rules, user, groups)
        assert f"shoal users add {user} --tenant" in (refused.value.hint or "")
        listed = ", ".join(
            f"{rule.name} ({rule.tenant or 'admin'})" for rule in sorted(of_groups, key=lambda one: one.name)
        )
        assert refused.value.what.endswith(f": {listed}" if of_groups else "belongs to no tenant here")
        return
    found = rule_for(rules, user, groups)
    if (Kind.USER, user) in rules:
        assert found is rules[Kind.USER, user]
    else:
        assert found in of_groups
        assert all(rule.tenant == found.tenant for rule in of_groups)
        assert all(list(Role).index(rule.role) <= list(Role).index(found.role) for rule in of_groups)
        equal = {rule.run_as for rule in of_groups if rule.role is found.role}
        assert found.run_as is (RunAs.SELF if RunAs.SELF in equal else RunAs.TENANT)


def test_of_groups_that_agree_the_highest_role_counts_and_then_who_runs_as_themselves() -> None:
    def rules(*rows: tuple[str, str | None, Role, RunAs]) -> dict[tuple[Kind, str], Rule]:
        return {(Kind.GROUP, name): Rule(Kind.GROUP, name, *rest, created_at=0.0) for name, *rest in rows}  # type: ignore[arg-type]

    found = rules(
        ("a", "red", Role.MEMBER, RunAs.SELF),
        ("b", "red", Role.LEAD, RunAs.TENANT),
        ("c", "red", Role.LEAD, RunAs.SELF),
        ("d", "red", Role.LEAD, RunAs.TENANT),
        ("e", "blue", Role.VIEWER, RunAs.SELF),
        ("f", None, Role.ADMIN, RunAs.SELF),
    )
    for groups, wanted in (("ab", "b"), ("abcd", "c"), ("dcb", "c"), ("bd", "b"), ("a", "a"), ("f", "f")):
        assert rule_for(found, "bob", groups).name == wanted
    with pytest.raises(
        Forbidden,
        match=r"the user bob is in groups of several tenants: a \(red\), e \(blue\), f \(admin\) \(ask the admin",
    ):
        rule_for(found, "bob", "fea")


@given(st.text(min_size=1).filter(str.strip), st.integers(0, 2**32 - 1))
def test_events_tell_which_user_acted_whatever_its_name(name: str, uid: int) -> None:
    user = User(name, uid)
    assert User.of(user.actor) == user


@given(st.text())
def test_no_tenant_and_no_component_passes_for_a_user(name: str) -> None:
    for actor in (f"tenant:{name}", f"engine:{name}", f"plane:{name}", "admin", "server"):
        assert User.of(actor) is None


def _event(kind: str, actor: str) -> Event:
    return Event(1, 0.0, kind, actor, "", "red", "j-1", None, None, None, {})


def test_only_who_submitted_a_job_is_its_submitter() -> None:
    assert submitter([_event(EventKind.JOB_SUBMITTED, "user:alice/7")]) == User("alice", 7)
    assert submitter([_event(EventKind.JOB_SUBMITTED, "tenant:red")]) is None
    assert submitter([_event(EventKind.JOB_CANCEL_REQUESTED, "user:alice/7")]) is None
    assert submitter([]) is None


def test_a_user_opens_the_own_and_the_tenants_jobs_not_those_of_others() -> None:
    alice, bob = User("alice", 7), User("bob", 8)
    member = Principal("red", "t", user=alice, own_only=True)
    assert member.may_open(alice)
    assert member.may_open(None)
    assert not member.may_open(bob)
    assert not member.may_open(User("alice", 8)), "the name was given to another one"
    assert Principal("red", "t", user=alice).may_open(bob), "who leads the tenant"
    with pytest.raises(Forbidden):
        Principal("red", "t", read_only=True, user=alice).require_method("POST")
