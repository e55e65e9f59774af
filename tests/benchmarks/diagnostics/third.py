"""The third set: faults of one's own code, on tokens, Datasets, streams and tables, and healthy runs of unusual kinds.

What each fault does, at the end of the runs: metric and loss on training and validation data, and behind the bar those of the
same training without the fault. `bench_twins.py` prints them; here they are means over seeds 21 and 22 (of F101 to F118 23, too),
without the fault those of seed 21. Some faults show in a metric that is too good: what could be known of a language is 0.70 of
its symbols (0.81 nats). With seed 21, F114 finds none of the names and its twin all; F134 grows by 259 MiB and its twin by 1.
The best possible, by what samples were drawn from: H101 2.996 nats, H141 0.623, H143 0.945, H145 0.975, H146 0.611, H148 1.121.

    F101  accuracy         1         1  loss    0.0384   0.0381  |  0.702  0.693  loss    0.843   0.89
    F102  accuracy     0.999     0.999  loss    0.0128   0.0124  |  0.694  0.695  loss    0.877   0.88
    F103  accuracy     0.495      0.48  loss      1.55     1.65  |  0.701  0.693  loss    0.815  0.874
    F104  accuracy     0.969      0.92  loss     0.113    0.243  |  0.704   0.69  loss    0.799  0.869
    F105  accuracy     0.983      0.98  loss    0.0737   0.0819  |  0.694  0.696  loss    0.868  0.872
    F106  accuracy     0.917      0.92  loss     0.278    0.284  |    0.7  0.687  loss    0.819  0.919
    F107  accuracy     0.924     0.926  loss     0.234    0.237  |  0.704  0.723  loss    0.814  0.827
    F108  accuracy     0.369     0.192  loss      4.66     5.25  |   0.75   0.74  loss     2.28   2.72
    F109  accuracy     0.707     0.708  loss     0.661    0.677  |   0.85   0.87  loss    0.501  0.508
    F110  accuracy     0.302     0.316  loss      2.33     2.31  |  0.702  0.693  loss    0.843   0.89
    F111  accuracy    0.0653    0.0596  loss      3.16     3.17  |  0.694  0.695  loss    0.877   0.88
    F112  accuracy      0.39     0.402  loss      2.55     2.53  |  0.701  0.695  loss     1.15   1.16
    F113  accuracy     0.688     0.684  loss      2.56     2.57  |  0.701  0.693  loss    0.815  0.874
    F114  accuracy     0.985     0.984  loss    0.0282     0.03  |  0.977  0.976  loss   0.0588  0.063
    F115  accuracy     0.987     0.544  loss    0.0421     2.34  |  0.694  0.693  loss    0.813  0.838
    F116  accuracy     0.065    0.0595  loss      3.16     3.17  |  0.691  0.693  loss    0.887  0.897
    F117  accuracy     0.128      0.14  loss      3.07     3.05  |  0.677  0.676  loss      1.5    1.5
    F118  accuracy     0.131     0.143  loss      3.08     3.06  |  0.701  0.696  loss    0.928  0.959
    F119  accuracy     0.917     0.876  loss     0.392    0.441  |  0.881  0.767  loss    0.444  0.569
    F121  accuracy     0.704     0.629  loss     0.726    0.838  |  0.963  0.908  loss    0.407  0.462
    F122  accuracy         1     0.385  loss     0.075     1.82  |      1  0.842  loss   0.0682  0.396
    F123  accuracy     0.821      0.25  loss     0.479 8.84e+03  |  0.917  0.858  loss    0.304  0.381
    F124  accuracy     0.927     0.892  loss     0.173    0.246  |  0.988  0.425  loss   0.0582   3.94
    F125  accuracy     0.998     0.694  loss     0.162    0.882  |      1  0.392  loss     0.13   1.57
    F126  accuracy     0.958     0.421  loss      0.31     1.65  |      1  0.908  loss   0.0445  0.219
    F127  accuracy      0.25      0.25  loss      1.39     1.39  |  0.871  0.808  loss    0.494  0.558
    F128  accuracy     0.265     0.304  loss      1.38     1.38  |  0.825  0.771  loss    0.669  0.717
    F129  accuracy     0.779         0  loss     0.887     2.29  |  0.833  0.742  loss    0.665  0.674
    F130  accuracy      0.25      0.25  loss      1.39     1.39  |  0.825  0.771  loss    0.621  0.677
    F131  accuracy     0.902     0.352  loss     0.375     1.95  |  0.929  0.871  loss     0.31  0.403
    F132  r2       -1.88e+05 -1.77e+05  loss  2.23e+05 2.15e+05  |  0.898  0.901  loss    0.122   0.12
    F133  accuracy      0.25      0.25  loss      1.39     1.39  |  0.967  0.921  loss    0.116  0.228
    F134  accuracy     0.996     0.952  loss    0.0609    0.142  |  0.996  0.946  loss    0.061  0.152
    F135  accuracy     0.506     0.475  loss      1.24     1.25  |  0.996    0.9  loss    0.129  0.273
    F136  accuracy     0.433     0.352  loss      1.37     1.34  |  0.963  0.917  loss    0.163  0.268
    F137  accuracy      0.25      0.25  loss      1.39     1.39  |  0.892  0.821  loss    0.421   0.47
    F138  r2         0.00376   -0.0193  loss      1.19     1.24  |   0.94  0.935  loss   0.0719 0.0786
    F139  r2          0.0174    0.0168  loss      1.19     1.22  |   0.94  0.935  loss   0.0719 0.0786
    F141  accuracy      0.47       0.5  loss     0.563    0.542  |   0.93  0.937  loss    0.209  0.166
    F142  accuracy     0.993     0.371  loss    0.0414      478  |  0.993  0.958  loss   0.0443  0.109
    F143  accuracy         1         1  loss   0.00127  0.00411  |      1  0.508  loss 0.000745   4.42
    F144  accuracy     0.985     0.828  loss    0.0584    0.484  |  0.985  0.969  loss   0.0586  0.133
    F145  r2               1     0.999  loss  0.000378 0.000686  |   0.95   0.92  loss   0.0471 0.0702
    F146  accuracy         1     0.967  loss    0.0109   0.0597  |  0.978  0.867  loss   0.0889  0.353
    F147  rmse       0.00842    0.0109  loss  8.28e-05 0.000138  |  0.289  0.321  loss   0.0833  0.103
    F148  accuracy     0.671     0.849  loss     0.545    0.489  |      1  0.956  loss 2.58e-05  0.195
    F149  r2          0.0289    0.0275  loss     0.949    0.879  |  0.925  0.897  loss   0.0711 0.0897
    F150  r2           0.856     0.827  loss     0.136    0.151  |  0.935  0.885  loss   0.0616  0.101
    F151  accuracy      0.53       0.5  loss     0.693    0.693  |   0.96  0.947  loss    0.129  0.143
    F152  r2           0.204     0.185  loss     0.752    0.712  |  0.779  0.732  loss    0.209  0.234
    H101  accuracy    0.0708    0.0489  loss      3.03     3.08
    H102  accuracy     0.701     0.696  loss     0.864    0.898
    H103  accuracy     0.707     0.722  loss      0.81    0.817
    H104  accuracy     0.977     0.976  loss    0.0566   0.0631
    H121  fit          -0.14    -0.247  loss      2.08     2.08
    H124  accuracy     0.966      0.95  loss     0.108     0.15
    H125  accuracy     0.977      0.96  loss    0.0597     0.13
    H122  explained    0.675      0.67  loss    0.0299   0.0304
    H123  accuracy     0.887     0.823  loss      1.05     1.33
    H126  accuracy         1     0.984  loss    0.0112   0.0602
    H127  accuracy     0.692     0.894  loss      0.78    0.452
    H128  accuracy     0.917     0.844  loss     0.402    0.493
    H141  accuracy     0.601     0.603  loss     0.676    0.672
    H142  accuracy         1     0.908  loss    0.0162    0.248
    H143  mae          0.738     0.948  loss     0.738    0.948
    H144  accuracy         1         1  loss    0.0331   0.0364
    H145  r2           0.974     0.971  loss     -1.41    -1.31
    H146  r2           0.755     0.614  loss     -0.39   -0.252
    H147  within         0.8     0.802  loss     0.266    0.368
    H148  rmse          0.91      1.15  loss     0.829     1.32
    H149  accuracy      0.94     0.945  loss     0.187    0.165
"""

from __future__ import annotations

from tests.benchmarks.diagnostics import third_sets, third_tables, third_tokens
from tests.benchmarks.diagnostics.case import Case
from tests.benchmarks.diagnostics.pairs import Pair

PAIRS: list[Pair] = [*third_tokens.PAIRS, *third_sets.PAIRS, *third_tables.PAIRS]
HEALTHY: list[Case] = [*third_tokens.HEALTHY, *third_sets.HEALTHY, *third_tables.HEALTHY]
CASES: list[Case] = [*(one.case for one in PAIRS), *HEALTHY]
