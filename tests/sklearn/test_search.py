"""The search as scikit-learn's users know searches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits, make_regression
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from flwr_fbo import DPFTSDE, Float
from flwr_fbo.sklearn import FederatedSearchCV

X, Y = load_digits(return_X_y=True)
PARTIES = [(X[n::12], Y[n::12]) for n in range(4)]
SPACE = {"C": Float(1e-3, 1e3, log=True), "gamma": Float(1e-6, 1e-1, log=True)}
SMALL: dict[str, Any] = {"rounds": 1, "cv": 2, "settings": {"initial_points": 1}}


@parametrize_with_checks(
    [
        FederatedSearchCV(
            LogisticRegression(max_iter=2000), {"C": Float(0.1, 10.0, log=True)}, **SMALL
        ),
        FederatedSearchCV(Ridge(), {"alpha": Float(0.1, 10.0, log=True)}, **SMALL),
    ]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_each_party_gets_parameters_and_an_estimator_of_its_own() -> None:
    search = FederatedSearchCV(SVC(), SPACE, cv=3, rounds=4, random_state=1).fit(PARTIES)
    assert len(search.party_best_params_) == len(search.estimators_) == 4
    for n, (x, y) in enumerate(PARTIES):
        mine = [row for row in search.evaluations_ if row["agent"] == n]
        assert len(mine) == 6  # two initial points and four rounds
        assert max(row["score"] for row in mine) == search.party_best_scores_[n]
        fitted = SVC(**search.party_best_params_[n]).fit(x, y)
        np.testing.assert_array_equal(search.predict(X[:50], party=n), fitted.predict(X[:50]))
        assert search.score(x, y, party=n) == fitted.score(x, y)
    assert set(search.best_params_) == set(SPACE)
    assert search.best_params_ == search.result_.recommended
    with pytest.raises(ValueError, match=r"`party` must be in \[0, 4\)"):
        search.predict(X[:2])


def test_the_same_parties_as_groups_of_rows() -> None:
    pairs = FederatedSearchCV(SVC(), SPACE, cv=3, rounds=2).fit(PARTIES)
    rows, targets = (np.concatenate([p[i] for p in PARTIES]) for i in (0, 1))
    groups = np.repeat(["a", "b", "c", "d"], [len(y) for _, y in PARTIES])
    grouped = FederatedSearchCV(SVC(), SPACE, cv=3, rounds=2).fit(rows, targets, groups)
    assert grouped.party_best_params_ == pairs.party_best_params_


def test_a_private_search_says_what_it_guarantees() -> None:
    search = FederatedSearchCV(SVC(), SPACE, epsilon=8.0, cv=3, rounds=2).fit(PARTIES)
    assert search.result_.private
    assert 0 < search.result_.epsilon <= 8.0
    same = FederatedSearchCV(SVC(), SPACE, strategy=DPFTSDE(epsilon=8.0), cv=3, rounds=2)
    assert same.fit(PARTIES).result_.epsilon == search.result_.epsilon


def test_pipelines_and_other_scores() -> None:
    space = {"ridge__alpha": Float(1e-3, 1e3, log=True)}
    data = [make_regression(40, 5, noise=5.0, random_state=n) for n in range(2)]
    model = make_pipeline(StandardScaler(), Ridge())
    search = FederatedSearchCV(model, space, scoring="neg_mean_squared_error", cv=3, rounds=3)
    search.fit(data)
    assert not is_classifier(search)
    assert all(score < 0 for score in search.party_best_scores_)
    assert search.score(*data[0], party=0) < 0
    assert clone(search).get_params()["rounds"] == 3


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match="one value for each of the 150 rows"):
        FederatedSearchCV(SVC(), SPACE).fit(*PARTIES[0], groups=[1, 2])
    with pytest.raises(ValueError, match="the first failure was: ValueError"):
        FederatedSearchCV(SVC(), SPACE, **SMALL).fit(X[:10], np.zeros(10))
