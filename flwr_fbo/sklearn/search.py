"""A simulated federation as a scikit-learn estimator, by the side of ``RandomizedSearchCV``.

Each party searches for the parameters that suit its own data, by cross-validation on its own data,
and the parties share what a strategy of this package shares. The whole federation runs in this
process, so the data of all parties must be here: this is for experiments.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv, cross_val_score
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from flwr_fbo.core.space import Space
from flwr_fbo.runs.result import Result
from flwr_fbo.simulation.engine import Engine
from flwr_fbo.simulation.simulate import simulate
from flwr_fbo.tasks.metrics import known_range
from flwr_fbo.tasks.task import Params, Partition, Task


def _estimators_have(name: str) -> Any:
    """Return a check that the wrapped estimator has a method."""

    def check(self: Any) -> bool:
        estimators = getattr(self, "estimators_", None)
        return hasattr(estimators[0] if estimators else self.estimator, name)

    return check


class FederatedSearchCV(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Search for the parameters of an estimator, for several parties that help one another.

    Parameters
    ----------
    estimator : estimator
        An estimator of scikit-learn, which is cloned.
    space : mapping or Space
        The parameters to search, such as ``{"C": Float(1e-3, 1e3, log=True)}``.
    scoring : str or callable, optional
        The score, which is maximised; the estimator's own ``score`` where unset.
    cv : int or splitter
        How each party divides its data for cross-validation.
    strategy : str or FBOStrategy
        A strategy that `flwr-fbo strategies` lists, or an object such as ``DPFTSDE(epsilon=4)``.
    epsilon : float, optional
        The privacy budget of each party for the whole search; where unset, nothing is private.
    rounds : int
        Evaluations that each party makes after its initial points.
    settings : mapping, optional
        Other settings of the run and the strategy, by their Python names.
    refit : bool
        Whether to fit an estimator to the data of each party, with the party's best parameters.
    score_range : tuple of float, optional
        Lowest and highest possible score. Known scores such as ``accuracy`` need none.
    random_state : int
        The seed of the search. The noise of a private search does not depend on it.
    engine : {'auto', 'inline', 'processes', 'ray'}
        The engine of the simulation, see :func:`~flwr_fbo.simulate`.

    Attributes
    ----------
    best_params_ : dict
        The parameters recommended to all parties; of a single party, or where the strategy
        recommends none, those of the party with the best score.
    party_best_params_ : list of dict
        The best parameters of each party.
    party_best_scores_ : list of float
        The cross-validated score of these parameters.
    estimators_ : list of estimators
        The estimator of each party, with ``refit``.
    result_ : Result
        The result of the run, with its privacy.
    evaluations_ : list of dict
        One row for each evaluation.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import SVC
    >>> from flwr_fbo import Float
    >>> x, y = load_iris(return_X_y=True)
    >>> parties = [(x[n::3], y[n::3]) for n in range(3)]
    >>> search = FederatedSearchCV(SVC(), {"C": Float(1e-2, 1e2, log=True)}, rounds=3, cv=3)
    >>> search = search.fit(parties)
    >>> len(search.party_best_params_), search.predict(x[:2], party=1).shape
    (3, (2,))
    """

    def __init__(
        self,
        estimator: Any,
        space: Mapping[str, Any] | Space,
        *,
        scoring: Any = None,
        cv: Any = 5,
        strategy: Any = "dp-fts-de",
        epsilon: float | None = None,
        rounds: int = 10,
        settings: Mapping[str, Any] | None = None,
        refit: bool = True,
        score_range: tuple[float, float] | None = None,
        random_state: int = 0,
        engine: Engine = "auto",
    ) -> None:
        self.estimator, self.space, self.scoring, self.cv = estimator, space, scoring, cv
        self.strategy, self.epsilon, self.rounds, self.settings = (
            strategy,
            epsilon,
            rounds,
            settings,
        )
        self.refit, self.score_range = refit, score_range
        self.random_state, self.engine = random_state, engine

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: those of the wrapped estimator."""
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        return tags

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> FederatedSearchCV:
        """Search, and fit an estimator for each party.

        Parameters
        ----------
        X : list of (X, y), or array
            The data of each party; or the features of all rows.
        y : array, optional
            The targets of all rows, where X is an array.
        groups : array, optional
            The party of each row, where X is an array; all rows belong to one party where unset.
        """
        parties = self._parties(X, y, groups)
        task = _SearchTask(self, parties)
        given = dict(self.settings or {})
        if self.epsilon is not None:
            given["epsilon"] = self.epsilon
        with tempfile.TemporaryDirectory() as folder:
            result = simulate(
                task,
                agents=len(parties),
                rounds=self.rounds,
                strategy=self.strategy,
                seed=self.random_state,
                engine=self.engine,
                run_dir=Path(folder) / "run",
                **given,
            )
            self.evaluations_ = result.to_records()
        self._take(result, parties)
        return self

    def _parties(self, X: Any, y: Any, groups: Any) -> list[tuple[Any, Any]]:
        """Return the checked data of each party."""
        if y is None and _is_list_of_pairs(X):
            parties = [self._validated(x, t, reset=n == 0) for n, (x, t) in enumerate(X)]
        else:
            x, t = self._validated(X, y, reset=True)
            if groups is None:
                parties = [(x, t)]
            else:
                owners = np.asarray(groups)
                if owners.shape != (x.shape[0],):
                    raise ValueError(
                        f"`groups` must have one value for each of the {x.shape[0]} rows, but has "
                        f"shape {owners.shape}"
                    )
                parties = [(x[owners == o], t[owners == o]) for o in np.unique(owners)]
        if is_classifier(self.estimator):
            for _, targets in parties:
                check_classification_targets(targets)
        return parties

    def _validated(self, X: Any, y: Any, reset: bool) -> tuple[Any, Any]:
        tags = get_tags(self.estimator)
        checked: tuple[Any, Any] = validate_data(
            self,
            X,
            y,
            reset=reset,
            accept_sparse=tags.input_tags.sparse and ("csr", "csc"),
            ensure_all_finite="allow-nan" if tags.input_tags.allow_nan else True,
            multi_output=tags.target_tags.multi_output,
            y_numeric=tags.estimator_type == "regressor",
            dtype=None if tags.input_tags.string or tags.input_tags.categorical else "numeric",
        )
        return checked

    def _take(self, result: Result, parties: Sequence[tuple[Any, Any]]) -> None:
        """Set the fitted attributes."""
        found = result.agents_best
        if any(agent["params"] is None for agent in found):
            failed = next((row for row in self.evaluations_ if row["failure"]), None)
            raise ValueError(
                "every evaluation of a party failed; the first failure was: "
                f"{failed['failure'] if failed else 'none was recorded'}"
            )
        self.result_ = result
        self.party_best_params_ = [agent["params"] for agent in found]
        self.party_best_scores_ = [agent["best"] for agent in found]
        best = int(np.argmax(self.party_best_scores_))
        recommended = result.recommended if len(parties) > 1 else None
        self.best_params_ = recommended or self.party_best_params_[best]
        if self.refit:
            self.estimators_ = [
                clone(self.estimator).set_params(**params).fit(x, y)
                for params, (x, y) in zip(self.party_best_params_, parties, strict=True)
            ]

    # -- the estimators of the parties -------------------------------------------------------

    def _of_party(self, party: int | None) -> Any:
        check_is_fitted(self, "estimators_")
        if party is None and len(self.estimators_) > 1:
            raise ValueError(
                f"`party` must be in [0, {len(self.estimators_)}), as each party has an estimator "
                "of its own, but got None"
            )
        return self.estimators_[party or 0]

    def _method(self, name: str, X: Any, party: int | None) -> Any:
        return getattr(self._of_party(party), name)(X)

    @property
    def classes_(self) -> Any:
        """Return the classes of the first party."""
        return self._of_party(0).classes_

    @available_if(_estimators_have("predict"))  # type: ignore[untyped-decorator]
    def predict(self, X: Any, party: int | None = None) -> Any:
        """Return the predictions of a party's estimator."""
        return self._method("predict", X, party)

    @available_if(_estimators_have("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, party: int | None = None) -> Any:
        """Return the probabilities of a party's estimator."""
        return self._method("predict_proba", X, party)

    @available_if(_estimators_have("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any, party: int | None = None) -> Any:
        """Return the decision function of a party's estimator."""
        return self._method("decision_function", X, party)

    @available_if(_estimators_have("transform"))  # type: ignore[untyped-decorator]
    def transform(self, X: Any, party: int | None = None) -> Any:
        """Return what a party's estimator makes of X."""
        return self._method("transform", X, party)

    def score(self, X: Any, y: Any = None, party: int | None = None) -> float:
        """Return the score of a party's estimator."""
        scorer = check_scoring(self.estimator, self.scoring)
        return float(scorer(self._of_party(party), X, y))


class _SearchTask(Task):
    """The task of a search: a party's score is its cross-validated score."""

    def __init__(self, search: FederatedSearchCV, parties: Sequence[tuple[Any, Any]]) -> None:
        super().__init__()
        space = search.space
        self._space = space if isinstance(space, Space) else Space(space)
        self._search, self._parties = search, parties
        accuracy = search.scoring is None and is_classifier(search.estimator)
        self.metric = search.scoring if isinstance(search.scoring, str) else "score"
        known = known_range("accuracy" if accuracy else self.metric)
        self.score_range = search.score_range or known

    @property
    def space(self) -> Space:
        return self._space

    @property
    def name(self) -> str:
        # The address tells apart the tasks that this process keeps prepared.
        return f"{type(self._search.estimator).__name__}-{id(self):x}"

    def prepare(self, partition: Partition) -> None:
        self._x, self._y = self._parties[partition.index]

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        search = self._search
        estimator = clone(search.estimator).set_params(**params)
        splits = check_cv(search.cv, self._y, classifier=is_classifier(estimator))
        scores = cross_val_score(
            estimator, self._x, self._y, scoring=search.scoring, cv=splits, error_score="raise"
        )
        return float(scores.mean())


def _is_list_of_pairs(X: Any) -> bool:
    """Return whether X is a list of (X, y), and not an array in the form of lists."""
    if not isinstance(X, (list, tuple)) or not X:
        return False
    pairs = all(isinstance(pair, tuple) and len(pair) == 2 for pair in X)
    return pairs and all(np.ndim(x) > 0 or hasattr(x, "shape") for x, _ in X)
