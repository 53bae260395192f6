"""Downloads and converts a data set: python download_and_convert_data.py --dataset_name=cifar10
--dataset_dir=/tmp/data/cifar10.

--source_dir names a folder that has the downloaded files already.
"""

from fastnn.datasets.download_and_convert_data import main

if __name__ == "__main__":
    main()
