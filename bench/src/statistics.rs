//! Medians and spread.

/// Summary of repeated measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The middle value.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Summary {
    /// All of it less a constant.
    #[must_use]
    pub fn less(self, constant: f64) -> Self {
        Self {
            median: self.median - constant,
            min: self.min - constant,
            max: self.max - constant,
        }
    }

    /// `None` for no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(*values.get(middle.checked_sub(1)?)?, values[middle])
        } else {
            values[middle]
        };
        Some(Self {
            median,
            min: *values.first()?,
            max: *values.last()?,
        })
    }
}

/// The value below which lies this share of all, by nearest rank; `None` for no
/// values.
pub fn percentile<T: Ord + Copy>(values: &[T], share: f64) -> Option<T> {
    let mut values = values.to_vec();
    values.sort_unstable();
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<u32> = (1..=200).rev().collect();
        assert_eq!(percentile(&values, 0.5), Some(100));
        assert_eq!(percentile(&values, 0.99), Some(198));
        assert_eq!(percentile(&[7], 0.0), Some(7));
        assert_eq!(percentile::<u32>(&[], 0.5), None);
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_middle_two() {
        let odd = Summary::of([3.0, 1.0, 100.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max), (3.0, 1.0, 100.0));
        assert_eq!(Summary::of([4.0, 1.0, 2.0, 100.0]).unwrap().median, 3.0);
        assert_eq!(Summary::of([]), None);
    }
}
