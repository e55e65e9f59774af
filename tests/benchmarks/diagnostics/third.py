"""The third set: faults of one's own code, on tokens, Datasets, streams and tables, and healthy runs of unusual kinds.

What each fault does, at the end of the runs: metric and loss on training and validation data, and behind the bar those of the
same training without the fault. `bench_twins.py` prints them; here they are means over seeds 21 to 23, and without
the fault those of seed 21. Some faults show in a metric that is too good: what could be known of a language is 0.70 of
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
    F119  accuracy     0.916     0.873  loss     0.397    0.444  |  0.881  0.767  loss    0.444  0.569
    F121  accuracy     0.686     0.636  loss     0.743    0.814  |  0.963  0.908  loss    0.407  0.462
    F122  accuracy         1     0.371  loss    0.0694     1.88  |      1  0.842  loss   0.0682  0.396
    F123  accuracy     0.789      0.25  loss     0.566 9.09e+03  |  0.917  0.858  loss    0.304  0.381
    F124  accuracy     0.921     0.886  loss     0.183    0.251  |  0.988  0.425  loss   0.0582   3.94
    F125  accuracy     0.999     0.686  loss     0.168    0.889  |      1  0.392  loss     0.13   1.57
    F126  accuracy      0.95     0.426  loss     0.335     1.64  |      1  0.908  loss   0.0445  0.219
    F127  accuracy      0.25      0.25  loss      1.39     1.39  |  0.871  0.808  loss    0.494  0.558
    F128  accuracy     0.279     0.294  loss      1.38     1.38  |  0.825  0.771  loss    0.669  0.717
    F129  accuracy     0.778   0.00278  loss     0.857     2.07  |  0.833  0.742  loss    0.665  0.674
    F130  accuracy      0.25      0.25  loss      1.39     1.39  |  0.825  0.771  loss    0.621  0.677
    F131  accuracy     0.899      0.34  loss     0.398     1.97  |  0.929  0.871  loss     0.31  0.403
    F132  r2       -1.25e+05 -1.18e+05  loss  1.49e+05 1.43e+05  |  0.898  0.901  loss    0.122   0.12
    F133  accuracy      0.25      0.25  loss      1.39     1.39  |  0.967  0.921  loss    0.116  0.228
    F134  accuracy     0.994     0.956  loss    0.0601    0.138  |  0.996  0.946  loss    0.061  0.152
    F135  accuracy       0.5     0.493  loss      1.22     1.23  |  0.996    0.9  loss    0.129  0.273
    F136  accuracy     0.453     0.417  loss      1.32     1.26  |  0.963  0.917  loss    0.163  0.268
    F137  accuracy      0.25      0.25  loss      1.39     1.39  |  0.892  0.821  loss    0.421   0.47
    F138  r2         0.00419   -0.0213  loss      1.19     1.24  |   0.94  0.935  loss   0.0719 0.0786
    F139  r2           0.022    0.0163  loss      1.19     1.22  |   0.94  0.935  loss   0.0719 0.0786
    F141  accuracy      0.47       0.5  loss     0.563    0.542  |   0.93  0.937  loss    0.209  0.166
    F142  accuracy     0.993     0.371  loss    0.0429      456  |  0.993  0.958  loss   0.0443  0.109
    F143  accuracy         1         1  loss   0.00137  0.00475  |      1  0.508  loss 0.000745   4.42
    F144  accuracy     0.986     0.836  loss    0.0567    0.469  |  0.985  0.969  loss   0.0586  0.133
    F145  r2               1     0.999  loss  0.000436 0.000829  |   0.95   0.92  loss   0.0471 0.0702
    F146  accuracy         1      0.97  loss    0.0122   0.0669  |  0.978  0.867  loss   0.0889  0.353
    F147  rmse        0.0116    0.0143  loss  0.000161 0.000241  |  0.289  0.321  loss   0.0833  0.103
    F148  accuracy      0.67     0.847  loss     0.544    0.482  |      1  0.956  loss 2.58e-05  0.195
    F149  r2           0.024    0.0214  loss     0.949    0.879  |  0.925  0.897  loss   0.0711 0.0897
    F150  r2           0.857      0.82  loss     0.135    0.158  |  0.935  0.885  loss   0.0616  0.101
    F151  accuracy      0.53       0.5  loss     0.693    0.693  |   0.96  0.947  loss    0.129  0.143
    F152  r2           0.226     0.203  loss     0.731    0.697  |  0.779  0.732  loss    0.209  0.234
    H101  accuracy    0.0712    0.0494  loss      3.03     3.08
    H102  accuracy     0.701     0.696  loss     0.869    0.901
    H103  accuracy     0.706     0.722  loss     0.809    0.816
    H104  accuracy     0.977     0.976  loss     0.057   0.0634
    H121  fit         -0.131    -0.246  loss      2.08     2.08
    H124  accuracy     0.964      0.94  loss     0.113    0.167
    H125  accuracy     0.983     0.968  loss     0.045    0.104
    H122  explained     0.67      0.66  loss    0.0303   0.0313
    H123  accuracy     0.892     0.835  loss      1.04     1.31
    H126  accuracy         1     0.986  loss    0.0101   0.0569
    H127  accuracy     0.683     0.897  loss     0.767    0.435
    H128  accuracy     0.904     0.842  loss     0.422    0.501
    H141  accuracy       0.6     0.604  loss     0.676    0.672
    H142  accuracy         1     0.912  loss    0.0146    0.222
    H143  mae          0.736     0.946  loss     0.736    0.946
    H144  accuracy         1         1  loss    0.0299   0.0319
    H145  r2           0.973      0.97  loss     -1.38    -1.24
    H146  r2           0.755     0.611  loss    -0.389    -0.25
    H147  within        0.79     0.793  loss     0.266    0.368
    H148  rmse         0.915      1.16  loss     0.837     1.34
    H149  accuracy     0.937     0.944  loss     0.186    0.162
"""

from __future__ import annotations

from tests.benchmarks.diagnostics import third_sets, third_tables, third_tokens
from tests.benchmarks.diagnostics.case import Case
from tests.benchmarks.diagnostics.pairs import Pair

PAIRS: list[Pair] = [*third_tokens.PAIRS, *third_sets.PAIRS, *third_tables.PAIRS]
HEALTHY: list[Case] = [*third_tokens.HEALTHY, *third_sets.HEALTHY, *third_tables.HEALTHY]
CASES: list[Case] = [*(one.case for one in PAIRS), *HEALTHY]
