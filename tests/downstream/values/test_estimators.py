"""Estimators of scikit-learn that were fitted in one library predict in another.

SciPy reads the environment variable that the Array API needs when it is first imported, so all runs in a new process.
"""

import pytest

ALL = """
import numpy as np, sklearn, torch
import arrayferry as af
from sklearn.utils._array_api import move_estimator_to
from sklearn.utils.discovery import all_estimators

sklearn.set_config(array_api_dispatch=True)
x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
y = (x[:, 0] + x[:, 1] > 0).astype(np.int64)
METHODS = ("predict", "transform", "predict_proba", "decision_function")
tried = set()
for name, cls in all_estimators():
    try:
        estimator = cls()
        supports = estimator.__sklearn_tags__().array_api_support
    except Exception:  # it needs arguments
        continue
    if not supports or name == "LabelEncoder":
        continue
    data = x @ x.T if name == "KernelCenterer" else x
    estimator.fit(torch.from_numpy(data.copy()), torch.from_numpy(y.copy()))
    kept = {key: id(part) for key, part in vars(estimator).items()}
    ours, theirs = af.convert(estimator, "numpy"), move_estimator_to(estimator, np, None)
    back = af.convert({"a": [ours]}, "torch")["a"][0]
    for method in METHODS:
        if hasattr(estimator, method):
            expected = getattr(theirs, method)(data)
            found = getattr(ours, method)(data)
            assert type(found) is np.ndarray and np.array_equal(found, expected), (name, method)
            again = getattr(back, method)(torch.from_numpy(data.copy()))
            assert type(again) is torch.Tensor
            assert np.allclose(again, expected, atol=1e-4), (name, method)
    assert kept == {key: id(part) for key, part in vars(estimator).items()}
    tried.add(name)
assert {"LinearDiscriminantAnalysis", "LogisticRegression", "PCA", "Ridge", "StandardScaler"} <= tried
assert len(tried) > 12
"""

OTHERS = """
import numpy as np, sklearn, torch
import arrayferry as af
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

x = np.random.default_rng(0).normal(size=(60, 5))
y = x[:, 0] > 0
forest = RandomForestClassifier(3).fit(x, y)
assert af.convert({"a": forest}, "torch")["a"] is forest  # it does not support the Array API
sklearn.set_config(array_api_dispatch=True)
pipe = make_pipeline(StandardScaler(), Ridge(solver="svd")).fit(torch.from_numpy(x), torch.from_numpy(x[:, 1].copy()))
moved = af.convert(pipe, "numpy")
assert type(pipe[1].coef_) is torch.Tensor and type(moved[1].coef_) is np.ndarray
assert np.allclose(moved.predict(x), pipe.predict(torch.from_numpy(x)))
named = LogisticRegression().fit(x, np.where(y, "up", "down"))
moved = af.convert(named, "torch")
assert moved.classes_ is named.classes_ and type(moved.coef_) is torch.Tensor


class Own(StandardScaler):
    def __sklearn_array_api_convert__(self, converter):
        new = Own()
        new.mean_ = converter(self.mean_)
        return new


own = Own().fit(x)
assert type(af.convert([own], "torch")[0].mean_) is torch.Tensor and not hasattr(af.convert(own, "torch"), "var_")
"""


@pytest.mark.parametrize("script", [ALL, OTHERS], ids=["all", "others"])
def test_fitted_estimators_predict_in_another_library(run_python, script):
    run_python(script, env={"SCIPY_ARRAY_API": "1", "PYTHONWARNINGS": "ignore"})
