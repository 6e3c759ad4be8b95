"""Faults of privacy that are planted in a copy of the package, one at a time.

Each fault is one or more replacements of text, and names the quick test that must notice it.
``benchmarks.mutations`` plants the faults and prints who noticed them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """A replacement of text that occurs exactly once in a file of the package."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Fault:
    """A fault, its replacements and the test that must fail.

    Parameters
    ----------
    name : str
        What is wrong, as the table says it.
    edits : tuple of Edit
        The replacements that plant the fault.
    file, test : str
        The file of the test below ``tests``, and the test's name.
    audited : bool
        Whether the fault lies in what ``flwr-fbo audit`` runs: the releases of dp-fts-de.
    """

    name: str
    edits: tuple[Edit, ...]
    file: str
    test: str
    audited: bool = False


MECHANISMS = "privacy/mechanisms.py"
SERVER = "methods/dp_fts_de/server.py"
SUMMING_SERVER = "methods/summing_server.py"
AGGREGATION = "methods/dp_fts_de/aggregation.py"
LEDGER = "privacy/ledger.py"
LOCAL = "privacy/local.py"
LOCAL_AGENT = "methods/thompson/local_privacy.py"
PNE = "methods/fed_pne/privacy.py"
LDP = "methods/ldp/agent.py"
VOTING_SERVER = "methods/voting/server.py"
TALLY = "methods/voting/tally.py"
VOTING_AGENT = "methods/voting/agent.py"

ROSTER, ROSTERS = "strategies/roster.py", "flower/test_roster.py"
PARTY = "privacy/secure/party.py"
SECURE_SUM = "privacy/test_secure_sum.py"
SECURE_RUNS = "flower/test_secure_runs.py"

#: The line of GaussianSum.release that draws the noise, which many faults replace.
DRAWN = "drawn = noise.draw_rounded(noise.GAUSSIAN, self._lattice.units, units.size, entropy)"
#: The line of Aggregation.draw_release that divides by q.
DIVIDED = "return np.asarray(released.reshape(total.shape) / self.inclusion_probability)"
GENERATOR = "np.random.default_rng(int(entropy.words(1)[0]))"


def one(file: str, old: str, new: str) -> tuple[Edit, ...]:
    return (Edit(file, old, new),)


FAULTS = (
    # -- the noise of a release
    Fault(
        "noise of half the deviation",
        one(MECHANISMS, "math.nextafter(self.noise_multiplier * self.sensitivity, math.inf)",
            "0.5 * self.noise_multiplier * self.sensitivity"),
        "privacy/test_mechanisms.py",
        "test_release_is_the_sum_with_noise_of_the_stated_deviation", True,
    ),
    Fault(
        "no noise",
        one(MECHANISMS, "self._lattice.values(units + drawn)",
            "self._lattice.values(units + 0 * drawn)"),
        "privacy/test_mechanisms.py",
        "test_release_is_the_sum_with_noise_of_the_stated_deviation", True,
    ),
    Fault(
        "noise for the mean of the agents' weights instead of the largest, in the formula",
        one("privacy/sensitivity.py", "np.linalg.norm(table, axis=0).max()",
            "np.linalg.norm(table, axis=0).mean()"),
        "privacy/test_sensitivity.py",
        "test_no_message_moves_the_joint_vector_further_and_one_attains_it", True,
    ),
    Fault(
        "noise for the mean of the agents' weights instead of the largest, at the server",
        one(AGGREGATION, "joint_sensitivity(self.weights(round), clip, self.settings.sensitivity)",
            "float(np.linalg.norm(self.weights(round), axis=0).mean() * self.bound)"),
        "methods/test_dp_fts_de.py",
        "test_the_noise_is_for_the_largest_weights_where_homes_are_uneven", True,
    ),
    Fault(
        "noise for the weights of the last round in every round",
        one(AGGREGATION, "joint_sensitivity(self.weights(round), clip,",
            "joint_sensitivity(self.weights(10**6), clip,"),
        "methods/test_dp_fts_de.py",
        "test_releases_have_the_mean_and_variance_of_algorithm_1", True,
    ),
    Fault(
        "noise for the norm S / sqrt(P) instead of S",
        one(AGGREGATION, "clip = self.bound * math.sqrt(self.regions)  # S", "clip = self.bound"),
        "methods/test_dp_fts_de.py",
        "test_releases_have_the_mean_and_variance_of_algorithm_1", True,
    ),
    Fault(
        "noise in the first half of the numbers only",
        one(MECHANISMS, DRAWN, DRAWN + "\n        drawn[(units.size + 1) // 2 :] = 0"),
        "privacy/test_mechanisms.py",
        "test_noise_is_drawn_again_for_each_release", True,
    ),
    Fault(
        "one number of noise for all coordinates",
        one(MECHANISMS, DRAWN, DRAWN + "\n        drawn[:] = drawn[:1]"),
        "privacy/test_mechanisms.py",
        "test_noise_is_drawn_again_for_each_release", True,
    ),
    Fault(
        "every second release has the noise of the release before",
        one(MECHANISMS, DRAWN,
            "kept = GaussianSum.release.__dict__\n"
            "        drawn = kept.pop(units.size, None)\n"
            "        if drawn is None:\n"
            "            drawn = kept[units.size] = noise.draw_rounded(\n"
            "                noise.GAUSSIAN, self._lattice.units, units.size, entropy\n"
            "            )"),
        "privacy/test_mechanisms.py",
        "test_noise_is_drawn_again_for_each_release", True,
    ),
    Fault(
        "noise of single precision",
        one(MECHANISMS, DRAWN,
            f"drawn = np.rint({GENERATOR}.standard_normal(units.size, dtype=np.float32) "
            "* self._lattice.units).astype(np.int64)"),
        "privacy/test_mechanisms.py",
        "test_noise_has_as_many_bits_as_the_lattice", True,
    ),
    Fault(
        "noise of a generator that one word seeds for each release",
        one(MECHANISMS, DRAWN,
            f"drawn = np.rint({GENERATOR}.standard_normal(units.size) "
            "* self._lattice.units).astype(np.int64)"),
        "privacy/test_mechanisms.py",
        "test_every_number_of_the_noise_has_random_words_of_its_own", True,
    ),
    Fault(
        "the system's entropy is a generator with a fixed seed",
        one("privacy/entropy.py", "return _SystemEntropy()",
            "source = _SeededEntropy(0)\n    source.private = True  # type: ignore\n"
            "    return source"),
        "privacy/test_entropy.py",
        "test_system_entropy_is_private_and_differs_each_time", True,
    ),
    Fault(
        "a seeded source says that it is private",
        one("privacy/entropy.py", "private = False\n\n    def __init__(self, seed: int)",
            "private = True\n\n    def __init__(self, seed: int)"),
        "privacy/test_entropy.py",
        "test_seeded_entropy_repeats_itself_and_is_not_private",
    ),
    Fault(
        "the noise of doubles, not of a lattice",
        one(MECHANISMS, "self._lattice.values(units + drawn)",
            "self._lattice.values(units) + self._lattice.values(drawn) * (1.0 + 2.0**-33)"),
        "privacy/test_mechanisms.py",
        "test_release_is_the_sum_with_noise_of_the_stated_deviation",
    ),
    Fault(
        "a coarser lattice where the sum is not zero",
        one(MECHANISMS, "self._lattice.values(units + drawn)",
            "self._lattice.values((units + drawn) // 4 * 4 if units.any() else units + drawn)"),
        "privacy/test_mechanisms.py",
        "test_a_release_uses_every_point_of_the_lattice_whatever_the_sum_is",
    ),
    # -- what the noise hides: clip, rounding, sample
    Fault(
        "the server does not clip vectors, and relies on the clip of the lattice",
        one(AGGREGATION, "vectors = clip_rows(vectors, self._bound)  # line 9",
            "vectors = np.asarray(vectors)"),
        "methods/test_dp_fts_de.py",
        "test_releases_have_the_mean_and_variance_of_algorithm_1", True,
    ),
    Fault(
        "no clip at all",
        one(MECHANISMS, "    if not long.any():\n        return rows\n", "    return rows\n"),
        "privacy/test_mechanisms.py",
        "test_clipped_rows_are_within_the_bound_in_exact_arithmetic", True,
    ),
    Fault(
        "clip by the largest coordinate instead of the norm",
        one(MECHANISMS, "np.linalg.norm(rows / unit, axis=1, keepdims=True)",
            "np.abs(rows / unit).max(axis=1, keepdims=True)"),
        "privacy/test_mechanisms.py",
        "test_clipped_rows_are_within_the_bound_in_exact_arithmetic", True,
    ),
    Fault(
        "clip up to rounding errors only",
        one(MECHANISMS, "guard = (rows.shape[1] + 16) * 2.0**-52", "guard = 0.0"),
        "privacy/test_mechanisms.py",
        "test_clipped_rows_are_within_the_bound_in_exact_arithmetic",
    ),
    Fault(
        "contributions are rounded up onto the lattice",
        one(MECHANISMS, "return (values / self.step).astype(np.int64)",
            "return np.ceil(values / self.step).astype(np.int64)"),
        "privacy/test_mechanisms.py",
        "test_quantising_never_lengthens_and_loses_little",
    ),
    Fault(
        "everybody is counted, though a sample is charged",
        one(AGGREGATION, "self.weighted_sum(self.selected(vectors, entropy), round, mechanism)",
            "self.weighted_sum(vectors, round, mechanism)"),
        "methods/test_dp_fts_de.py",
        "test_the_sample_is_poisson_with_rate_q", True,
    ),
    Fault(
        "one sample for all releases",
        one(AGGREGATION, "chosen = poisson_sample(self.agents, self.sampling_rate, entropy)",
            "chosen = self.__dict__.setdefault(\n"
            '                "sample", poisson_sample(self.agents, self.sampling_rate, entropy)\n'
            "            )"),
        "methods/test_dp_fts_de.py",
        "test_the_sample_is_poisson_with_rate_q", True,
    ),
    Fault(
        "samples at twice the rate that is charged",
        one(AGGREGATION, "chosen = poisson_sample(self.agents, self.sampling_rate, entropy)",
            "chosen = poisson_sample(self.agents, min(1.0, 2 * self.sampling_rate), entropy)"),
        "methods/test_dp_fts_de.py",
        "test_the_sample_is_poisson_with_rate_q", True,
    ),
    Fault(
        "half of the sampling rate is charged",
        one(AGGREGATION, "return GaussianRelease(self.noise_multiplier, self.sampling_rate, round)",
            "return GaussianRelease(self.noise_multiplier, self.sampling_rate / 2, round)"),
        "methods/test_dp_fts_de.py",
        "test_every_release_is_charged_with_its_round_rate_and_noise", True,
    ),
    Fault(
        "sampling compares words of 32 bits with the rate",
        one("privacy/entropy.py", "words = entropy.words(undecided.size)",
            "words = entropy.words(undecided.size) >> np.uint64(32) << np.uint64(32)"),
        "privacy/test_entropy.py",
        "test_poisson_sample_reads_further_words_at_the_edge",
    ),
    Fault(
        "the sum is divided by the number of vectors that arrived",
        one(AGGREGATION, DIVIDED,
            DIVIDED[:-1] + " * self.agents / max(1, len(vectors)))"),
        "methods/test_dp_fts_de.py",
        "test_an_empty_sample_releases_noise_and_nothing_else", True,
    ),
    Fault(
        "the sum is divided by the size of the sample",
        (
            Edit(AGGREGATION,
                 "self.weighted_sum(self.selected(vectors, entropy), round, mechanism)",
                 "self.weighted_sum(chosen := self.selected(vectors, entropy), round, mechanism)"),
            Edit(AGGREGATION, DIVIDED,
                 "return np.asarray(\n"
                 "            released.reshape(total.shape) * self.agents / max(1, len(chosen))\n"
                 "        )"),
        ),
        "methods/test_dp_fts_de.py",
        "test_an_empty_sample_releases_noise_and_nothing_else", True,
    ),
    # -- the books
    Fault(
        "a release is charged after it is drawn",
        (
            Edit(SERVER, "        self.budget.charge(event)  # line 13, on disk before anything is "
                 "drawn\n", ""),
            Edit(SERVER, "        self._remember(released, deviation, self.round)\n",
                 "        self.budget.charge(event)\n"
                 "        self._remember(released, deviation, self.round)\n"),
        ),
        "methods/test_dp_fts_de.py",
        "test_a_release_is_charged_before_anything_is_drawn", True,
    ),
    Fault(
        "a release is not charged",
        one(SERVER, "        self.budget.charge(event)  # line 13, on disk before anything is "
            "drawn\n", ""),
        "methods/test_dp_fts_de.py",
        "test_every_release_is_charged_with_its_round_rate_and_noise", True,
    ),
    Fault(
        "a release in a round that is not planned",
        one(SERVER, "due = self.round in self.release_plan.rounds and not self.exhausted",
            "due = not self.exhausted"),
        "methods/test_dp_fts_de.py",
        "test_rounds_that_release", True,
    ),
    Fault(
        "the noise is planned for one release less",
        one(SERVER, "* len(self.release_plan.rounds)\n        self.noise_multiplier",
            "* max(1, len(self.release_plan.rounds) - 1)\n        self.noise_multiplier"),
        "methods/test_dp_fts_de.py",
        "test_a_planned_run_spends_its_budget_and_no_more", True,
    ),
    Fault(
        "the noise is planned at another delta than the one that is claimed",
        one(SERVER, "s.epsilon, self._charged_delta, rates, s.account, self.agents",
            "s.epsilon, 1e-2, rates, s.account, self.agents"),
        "methods/test_dp_fts_de.py",
        "test_a_planned_run_spends_its_budget_and_no_more", True,
    ),
    Fault(
        "the delta that is set is not used",
        one("methods/dp_fts_de/settings.py", "        if self.delta is not None:\n"
            "            return self.delta\n", ""),
        "methods/test_dp_fts_de.py",
        "test_the_delta_that_is_set_is_planned_charged_and_stated",
    ),
    Fault(
        "epsilon and delta change places at the budget",
        one(SERVER, "s.epsilon or math.inf, self._charged_delta, self._ledger, s.account",
            "self._charged_delta, min(0.9, s.epsilon or 0.9), self._ledger, s.account"),
        "runs/test_release_files.py",
        "test_a_crash_between_release_and_checkpoint_leaves_no_stale_release",
    ),
    Fault(
        "the statement gives the epsilon that is spent, not that of the plan",
        one(SERVER, "epsilon=max(spent, min(planned, self.settings.epsilon or math.inf)),",
            "epsilon=spent,"),
        "privacy/test_statement.py",
        "test_epsilon_is_one_partys_over_the_whole_run", True,
    ),
    Fault(
        "the accountant composes one event too few",
        one("privacy/accountants.py", "return pld.epsilon(self._counts, delta)",
            "return pld.epsilon(\n"
            "            tuple((k, c - 1) for k, c in self._counts if c > 1), delta\n"
            "        )"),
        "privacy/test_accountants.py",
        "test_figures_of_an_independent_computation", True,
    ),
    Fault(
        "a resumed budget forgets the first event",
        one("privacy/budget.py", "for event in ledger.events:", "for event in ledger.events[1:]:"),
        "privacy/test_budget.py",
        "test_a_resumed_run_continues_where_the_ledger_stands",
    ),
    Fault(
        "the budget never refuses",
        one("privacy/budget.py",
            "return self._accountant.would_exceed(event, self.epsilon, self.delta)",
            "return False"),
        "privacy/test_budget.py",
        "test_a_calibrated_schedule_fits_and_one_more_does_not",
    ),
    Fault(
        "a charge is not forced to the disk",
        one(LEDGER, "            _write(self._descriptor, line)\n"
            "            os.fsync(self._descriptor)\n",
            "            _write(self._descriptor, line)\n"),
        "privacy/test_ledger.py",
        "test_a_charge_is_forced_to_the_disk_before_it_returns",
    ),
    Fault(
        "a torn last charge is forgotten",
        one(LEDGER, "        if event is not None:\n            self.charge(event)",
            "        del event"),
        "privacy/test_ledger.py",
        "test_a_torn_last_line_at_every_byte",
    ),
    Fault(
        "the ledger of another run is accepted",
        one(LEDGER, "        if differ:\n", "        if differ and False:\n"),
        "privacy/test_ledger.py",
        "test_a_ledger_of_another_run_is_refused",
    ),
    Fault(
        "a ledger that lost its last charges is accepted",
        one(LEDGER, "        self._seal.check(self.path, self._chain)\n", ""),
        "privacy/test_ledger.py",
        "test_a_ledger_that_lost_lines_is_refused_at_every_cut",
    ),
    Fault(
        "noise for epsilon above 1 by the classical formula",
        one("privacy/calibration.py", "    if epsilon > _MOST_EPSILON:\n        return bound\n",
            "    return math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon\n"),
        "privacy/test_calibration.py",
        "test_the_noise_of_one_release_is_enough_and_hardly_more",
    ),
    # -- what else leaves an agent or a server
    Fault(
        "the server of a private run asks for scores",
        one("methods/thompson/server.py",
            '({"diagnostics": (2,)} if self.settings.diagnostics else {})',
            '{"diagnostics": (2,)}'),
        "methods/test_dp_fts_de.py",
        "test_rounds_that_release",
    ),
    Fault(
        "an agent sends its scores to a server that asks for them",
        one("methods/thompson/agent.py",
            'if "diagnostics" in request.expects and self.sampler.settings.diagnostics:',
            'if "diagnostics" in request.expects:'),
        "methods/test_thompson_agent.py",
        "test_scores_leave_only_in_a_run_that_says_so_whatever_a_server_asks",
    ),
    Fault(
        "a run whose agents send scores says that it is private",
        one(SERVER, "and self._entropy.private and not self.settings.diagnostics",
            "and self._entropy.private"),
        "methods/test_dp_fts_de.py",
        "test_noise_comes_from_the_operating_system_or_the_run_is_not_private",
    ),
    Fault(
        "a private run may end its rounds at a quorum",
        one(SERVER, "if settings.private and run.quorum < 1:", "if run.quorum < 0:"),
        "flower/test_replies.py",
        "test_a_private_run_has_no_quorum",
    ),
    Fault(
        "a private run may use a robust mean",
        one("methods/dp_fts_de/settings.py", 'if self.private and self.robust != "none":',
            "if False:"),
        "methods/test_robust.py",
        "test_bad_arguments_are_refused",
    ),
    # -- local privacy
    Fault(
        "local noise for the clip instead of twice the clip",
        one(LOCAL, "return GaussianSum(2.0 * self.clip, self.noise_multiplier)",
            "return GaussianSum(self.clip, self.noise_multiplier)"),
        "privacy/test_local.py",
        "test_local_gaussian_protects_any_two_vectors",
    ),
    Fault(
        "a local vector is not clipped",
        one(LOCAL, "self.mechanism.quantise(clip_rows(vector, self.clip))",
            "self.mechanism.quantise(np.atleast_2d(vector))"),
        "privacy/test_local.py",
        "test_local_gaussian_protects_any_two_vectors",
    ),
    Fault(
        "local noise is the same in every round",
        (
            Edit(LOCAL_AGENT, "budget.answer(self.mechanism, omega, self._entropy, round)",
                 "budget.answer(self.mechanism, omega, seeded_entropy(3), round)"),
            Edit(LOCAL_AGENT, "from flwr_fbo.privacy.entropy import Entropy, system_entropy",
                 "from flwr_fbo.privacy.entropy import Entropy, seeded_entropy, system_entropy"),
        ),
        "flower/test_local_privacy.py",
        "test_the_noise_has_the_deviation_that_was_paid_for",
    ),
    Fault(
        "a repeated local answer has new noise and no charge",
        (
            Edit(LOCAL_AGENT, "if request.round not in sent:", "if True:"),
            Edit(LOCAL_AGENT, "return budget.answer(self.mechanism, omega, self._entropy, round)",
                 'if any(r["round"] == round for r in self._records.read(self.KIND)):\n'
                 "                return self.mechanism.release(omega, self._entropy)\n"
                 "            return budget.answer(self.mechanism, omega, self._entropy, round)"),
        ),
        "flower/test_local_privacy.py",
        "test_an_answer_that_was_given_is_repeated_and_not_paid_for_again",
    ),
    Fault(
        "a local budget is kept in memory only",
        (
            Edit(LOCAL, "return cls(ledger, PrivacyBudget(epsilon, delta, ledger, name))",
                 "return cls(ledger, PrivacyBudget(epsilon, delta, MemoryLedger(), name))"),
            Edit(LOCAL, "from flwr_fbo.privacy.ledger import Ledger",
                 "from flwr_fbo.privacy.ledger import Ledger, MemoryLedger"),
        ),
        "privacy/test_local.py",
        "test_a_budget_lasts_over_runs_and_refuses",
    ),
    Fault(
        "an owner's limit has a new ledger in every run",
        one("methods/owner.py",
            "self.ledger if self.epsilon_limit is None else self.books or self.ledger",
            "self.ledger"),
        "flower/test_owner_limits.py",
        "test_three_runs_share_one_budget",
    ),
    Fault(
        "the larger of the run's and the owner's epsilon counts",
        one(LOCAL_AGENT, '"local-epsilon": min(limits)}', '"local-epsilon": max(limits)}'),
        "flower/test_owner_limits.py",
        "test_a_limit_makes_vectors_locally_private",
    ),
    Fault(
        "the server's delta replaces the owner's",
        one(LOCAL_AGENT, 'values["local-delta"] = owner.delta_limit', "pass"),
        "flower/test_owner_limits.py",
        "test_a_server_cannot_take_the_noise_away",
    ),
    Fault(
        "Laplace noise of scale (B + R) / epsilon, without the 2",
        one(LOCAL, "2.0 * self.bound / self.epsilon", "self.bound / self.epsilon"),
        "privacy/test_local.py",
        "test_ctl_clips_and_adds_laplace_noise_of_the_stated_scale",
    ),
    Fault(
        "a reward is not clipped before Laplace noise",
        one(LOCAL, "return float(min(bound, max(-bound, value)))", "return float(value)"),
        "privacy/test_local.py",
        "test_ctl_clips_and_adds_laplace_noise_of_the_stated_scale",
    ),
    Fault(
        "an agent of LDP-BO declines after a failed evaluation",
        (
            Edit(LDP, "return self._worst if evaluation.score is None else "
                 "evaluation.score - self._offset",
                 "return evaluation.score - self._offset  # type: ignore"),
            Edit(LDP, "            self._release(request, self._mechanism)\n",
                 "            try:\n"
                 "                self._release(request, self._mechanism)\n"
                 "            except TypeError:\n"
                 '                return Reply(declined="failed")\n'),
        ),
        "methods/ldp/test_federation.py",
        "test_a_failed_evaluation_looks_like_the_worst_reward",
    ),
    Fault(
        "an agent of LDP-BO draws new noise when asked again",
        one(LDP, "if request.round not in self._answers:", "if True:"),
        "methods/ldp/test_federation.py",
        "test_asked_again_for_a_round_the_agent_repeats_itself_even_after_a_restart",
    ),
    Fault(
        "the server's limit replaces the owner's at an agent of LDP-BO",
        one(LDP, "self._limit = asked if limit is None else min(asked, limit)",
            "self._limit = asked"),
        "methods/ldp/test_federation.py",
        "test_the_owner_may_allow_less_than_the_server_asks_for",
    ),
    Fault(
        "the noise of DP-Fed-PNE falls with the wrong power of the pulls",
        one(PNE, 'return MeanNoise(sigma, power=1 if settings.noise_on == "reward" else 2)',
            'return MeanNoise(sigma, power=2 if settings.noise_on == "reward" else 3)'),
        "methods/test_fed_pne_privacy.py",
        "test_the_guarantee_for_one_reward",
    ),
    Fault(
        "the noise of DP-Fed-PNE is drawn with the wrong power of the pulls",
        one(PNE, "math.sqrt(noise.variance(t)) * int(t)", "math.sqrt(noise.variance(t))"),
        "methods/test_fed_pne_privacy.py",
        "test_noise_has_the_stated_law",
    ),
    Fault(
        "a phase of DP-Fed-PNE that is asked again has new noise",
        one("methods/fed_pne/agent.py",
            "if self.settings.private and phase in self._releases:", "if False:"),
        "methods/test_fed_pne_privacy.py",
        "test_what_was_released_is_kept_and_never_drawn_again",
    ),
    Fault(
        "DP-Fed-PNE for a whole party ignores the number of means",
        one(PNE, "math.sqrt(settings.most_means) * sigma", "sigma"),
        "methods/test_fed_pne_privacy.py",
        "test_the_guarantee_for_one_user_is_the_composition_of_all_nodes",
    ),
    # -- the vote
    Fault(
        "votes are released without a charge",
        one(VOTING_SERVER, "self.budget.charge(event)  # on disk before anything is drawn", "pass"),
        "methods/test_voting.py",
        "test_only_the_last_round_asks_for_votes_and_it_is_charged_once",
    ),
    Fault(
        "the charge of the votes comes after their noise",
        one(VOTING_SERVER,
            "        self.budget.charge(event)  # on disk before anything is drawn\n"
            "        drawn = self.tally.draw_release(votes, self.round, self._entropy)\n",
            "        drawn = self.tally.draw_release(votes, self.round, self._entropy)\n"
            "        self.budget.charge(event)\n"),
        "methods/test_voting.py",
        "test_the_charge_is_on_disk_before_the_noise_is_drawn",
    ),
    Fault(
        "votes that a crash lost are released again",
        one(VOTING_SERVER,
            "        if self.budget.would_exceed(event):\n",
            "        if self.budget.would_exceed(event):\n"
            "            self.budget = PrivacyBudget(math.inf, self.delta, MemoryLedger())\n"
            "        if False:\n"),
        "methods/test_voting.py",
        "test_a_release_that_a_crash_lost_is_not_drawn_again",
    ),
    Fault(
        "the sensitivity of absent votes is used for replaced ones",
        one("methods/voting/settings.py",
            'math.sqrt(self.votes if self.neighbours == "absent" else 2 * self.votes)',
            "math.sqrt(self.votes)"),
        "methods/test_voting.py",
        "test_the_sensitivity_is_the_largest_distance_of_two_honest_neighbours",
    ),
    Fault(
        "votes below zero count",
        one(TALLY, "rows = np.clip(rows, 0.0, 1.0)", "rows = np.clip(rows, -1.0, 1.0)"),
        "methods/test_voting.py",
        "test_a_replys_votes_are_bounded_and_honest_votes_are_not_changed",
    ),
    Fault(
        "an agent votes again when it is asked again",
        one(VOTING_AGENT, "        if sent:\n", "        if sent and not voting:\n"),
        "methods/test_voting.py",
        "test_an_agent_votes_once_whatever_it_is_asked_later",
    ),
    Fault(
        "votes leave a party with a limit without noise",
        one(VOTING_AGENT,
            "votes = budget.answer(mechanism, votes, self._entropy, round)",
            "budget.answer(mechanism, votes, self._entropy, round)"),
        "methods/test_voting.py",
        "test_an_owners_limit_adds_noise_and_pays_for_one_vote",
    ),
    # -- secure sums
    Fault(
        "the masks of a secure sum are those of the sum before",
        one(PARTY, "channel, mask, seed = (p.new_secret(self._entropy) for _ in range(3))",
            "channel, mask, seed = (\n"
            "            (self._state.channel, self._state.mask, self._state.seed)\n"
            "            if self._state.mask\n"
            "            else (p.new_secret(self._entropy) for _ in range(3))\n"
            "        )"),
        SECURE_SUM, "test_another_sum_has_other_secrets_and_ends_the_one_before",
    ),
    Fault(
        "the secrets of a secure sum's masks stay on the disk",
        one(PARTY, "state.mask = state.seed = 0", "pass"),
        SECURE_SUM, "test_the_secrets_of_a_mask_are_gone_before_the_masked_vector_leaves",
    ),
    Fault(
        "a leg of a secure sum is answered twice",
        one(PARTY, "if self._state.leg != LEGS.index(leg):",
            "if self._state.leg < LEGS.index(leg):"),
        SECURE_SUM, "test_no_leg_is_answered_twice_and_no_mask_is_made_twice",
    ),
    Fault(
        "the masks of a secure sum are from a biased generator",
        one("privacy/secure/primitives.py", 'dtype="<u8").astype(np.uint64)',
            'dtype="<u8").astype(np.uint64) >> np.uint64(1)'),
        SECURE_SUM, "test_what_the_server_is_sent_is_uniform_whatever_the_vector",
    ),
    Fault(
        "one share of a secure sum's secret is given to all neighbours",
        one(PARTY, "zip(neighbours, of_seed[1:], of_mask[1:], strict=True)",
            "zip(neighbours, of_seed[1:2] * len(neighbours), of_mask[1:], strict=True)"),
        SECURE_SUM, "test_a_share_that_is_given_twice_counts_once",
    ),
    Fault(
        "a secure sum is opened for a list of survivors that few confirmed",
        one(PARTY, "if len(agreed) + 1 < state.recover:", "if False:"),
        SECURE_SUM, "test_two_lists_of_survivors_open_nothing",
    ),
    Fault(
        "a list of survivors below the threshold of a secure sum is confirmed",
        one(PARTY, "if len(listed) < self.terms.threshold:", "if False:"),
        SECURE_SUM, "test_a_wrong_list_of_survivors_is_refused",
    ),
    Fault(
        "the noise of a secure sum is enough only where nobody drops out",
        one("privacy/secure/noise_share.py", "honest = terms.threshold - terms.colluding",
            "honest = terms.parties"),
        SECURE_SUM, "test_any_honest_survivors_have_the_noise_that_is_charged",
    ),
    Fault(
        "a party of a secure sum does not clip its vector",
        one("privacy/secure/noise_share.py",
            "self._mechanism.quantise(np.asarray(vector)[None, :])[0]",
            "self.lattice.quantise(np.asarray(vector))"),
        SECURE_SUM, "test_a_contribution_is_clipped_by_the_party_itself",
    ),
    Fault(
        "keys of a secure sum are accepted from anybody who signs",
        one("privacy/secure/identity.py", "if name not in pinned:", "if False:"),
        "privacy/test_secure_identity.py", "test_a_party_of_the_servers_own_is_refused",
    ),
    Fault(
        "a secure sum is charged after the masked vectors have been sent",
        one(SUMMING_SERVER, 'if opened.leg == "masked":', 'if opened.leg == "confirm":'),
        SECURE_RUNS, "test_the_charge_is_on_the_disk_before_any_masked_vector_is_asked_for",
    ),
    Fault(
        "an agent takes part in more secure sums than were planned",
        one("methods/secure_sum.py", 'if self._state["masked"] + used > self._plan.allowance:',
            "if False:"),
        SECURE_RUNS, "test_an_agent_sends_no_more_masked_vectors_than_were_planned",
    ),
    Fault(
        "a stranger takes the place of an agent that is away",
        one(ROSTER, "if place.node != node and not same_owner:", "if False:"),
        ROSTERS, "test_nobody_else_takes_an_agents_place",
    ),
    Fault(
        "the node of an agent claims a second agent",
        one(ROSTER, "if self._place(home).used:", "if False:"),
        ROSTERS, "test_the_node_of_one_agent_cannot_be_a_second_one",
    ),
    Fault(
        "two nodes speak for one agent at the same time",
        one(ROSTER, "if self._node_of.get(agent, node) != node:", "if False:"),
        ROSTERS, "test_two_nodes_cannot_be_one_agent",
    ),
    Fault(
        "an agent that has taken part loses its place while it is away",
        one(ROSTER, "if place is None or place.used or place.node in present:",
            "if place is None or place.node in present:"),
        ROSTERS, "test_places_that_were_never_used_are_freed",
    ),
    Fault(
        "the nodes that the server's operator has fixed are not checked",
        one(ROSTER, "if self._fixed[number] != node:", "if False:"),
        ROSTERS, "test_the_operator_may_fix_the_node_of_each_agent",
    ),
    Fault(
        "the server keeps the secrets of owners",
        one(ROSTER, "return hashlib.sha256(secret.encode()).hexdigest()", "return secret"),
        "flower/test_identity.py", "test_the_server_keeps_and_logs_no_secret",
    ),
)  # fmt: skip
