"""scikit-learn's models as linear models, trees and networks. What is not known here becomes an opaque model."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.cascade.frontend.trees import lower_trees
from shoal.cascade.models.base import Link, Model, Output, output_of
from shoal.cascade.models.linear import Linear
from shoal.cascade.models.network import Network
from shoal.cascade.models.opaque import OpaqueModel

_LINEAR_CLASSIFIERS = {
    "LogisticRegression": Link.LOGISTIC, "LogisticRegressionCV": Link.LOGISTIC, "LinearSVC": Link.MARGIN,
    "RidgeClassifier": Link.MARGIN, "RidgeClassifierCV": Link.MARGIN, "Perceptron": Link.MARGIN,
    "PassiveAggressiveClassifier": Link.MARGIN, "SGDClassifier": Link.MARGIN,
}  # fmt: skip
_LINEAR_REGRESSORS = frozenset(
    {
        "LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV", "SGDRegressor",
        "LinearSVR", "HuberRegressor", "BayesianRidge", "PassiveAggressiveRegressor",
    }
)  # fmt: skip


def lower_model(estimator: Any) -> Model:
    """Raises TypeError for what neither classifies nor predicts values."""
    return _linear(estimator) or lower_trees(estimator) or _network(estimator) or _opaque(estimator)


def _linear(estimator: Any) -> Linear | None:
    name = type(estimator).__name__ if type(estimator).__module__.startswith("sklearn.") else ""
    if name in _LINEAR_REGRESSORS and estimator.coef_.ndim == 1:
        weights = np.asarray(estimator.coef_, np.float64)[:, None]
        return Linear(weights, np.reshape(np.asarray(estimator.intercept_, np.float64), 1), Output(Link.VALUE))
    if name in ("MultinomialNB", "ComplementNB") and len(estimator.classes_) > 1:
        weights = np.ascontiguousarray(estimator.feature_log_prob_.T)
        prior = estimator.class_log_prior_ if name == "MultinomialNB" else np.zeros(weights.shape[1])
        return Linear(weights, prior, output_of(Link.SOFTMAX, estimator.classes_))
    link = _LINEAR_CLASSIFIERS.get(name)
    if link is None or np.asarray(estimator.classes_).ndim != 1 or estimator.coef_.dtype != np.float64:
        return None
    binary = len(estimator.classes_) == 2
    if link is Link.LOGISTIC and not binary:
        link = Link.ONE_VERSUS_REST if estimator.solver == "liblinear" else Link.SOFTMAX
    if link is Link.LOGISTIC and getattr(estimator, "multi_class", "auto") == "multinomial":
        return None  # two scores made of one
    if name == "SGDClassifier":
        if estimator.loss == "modified_huber":
            return None  # probabilities of its own
        if estimator.loss == "log_loss":
            link = Link.LOGISTIC if binary else Link.ONE_VERSUS_REST
    weights = np.ascontiguousarray(np.asarray(estimator.coef_).T)
    intercept = np.broadcast_to(np.asarray(estimator.intercept_, np.float64), (weights.shape[1],))
    return Linear(weights, np.array(intercept), output_of(link, estimator.classes_))


def _network(estimator: Any) -> Network | None:
    if type(estimator).__name__ not in ("MLPClassifier", "MLPRegressor"):
        return None
    if not type(estimator).__module__.startswith("sklearn.") or estimator.coefs_[0].dtype != np.float64:
        return None
    links = {"identity": Link.VALUE, "logistic": Link.LOGISTIC, "softmax": Link.SOFTMAX}
    link = links[estimator.out_activation_]
    several = estimator.n_outputs_ > 1
    if several is not (link is Link.SOFTMAX):
        return None  # several labels or values a row
    meaning = Output(link) if link is Link.VALUE else output_of(link, estimator.classes_)
    return Network(tuple(estimator.coefs_), tuple(estimator.intercepts_), estimator.activation, meaning)


def _opaque(estimator: Any) -> OpaqueModel:
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        if not hasattr(estimator, "predict"):
            raise TypeError(f"{type(estimator).__name__} is no model: it has no `predict`")
        return OpaqueModel(estimator, Output(Link.VALUE))
    if hasattr(estimator, "predict_proba"):
        return OpaqueModel(estimator, output_of(Link.PROBABILITY, classes))
    return OpaqueModel(estimator, output_of(Link.MARGIN, classes))
