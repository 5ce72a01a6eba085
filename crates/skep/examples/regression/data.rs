//! Rows that are trained, the gradients of weights, and predictions.

/// The intervals of a column.
pub(crate) const BINS: usize = 16;
/// A weight of one.
const ONE: f64 = (1_u64 << 32) as f64;
/// The step of a weight for an error of one.
const RATE: f64 = 0.05;

/// Rows: the interval of each column, and true if the row has the label.
pub(crate) struct Data {
    pub(crate) columns: usize,
    pub(crate) rows: Vec<(Vec<usize>, bool)>,
}

impl Data {
    pub(crate) fn parse(text: &str, label: f64) -> Result<Data, String> {
        let numbers = |line: &str| line.split(',').map(|word| word.trim().parse()).collect::<Result<Vec<f64>, _>>();
        let rows: Vec<Vec<f64>> = text.lines().filter_map(|line| numbers(line).ok()).collect();
        let columns = rows.first().map_or(0, Vec::len).saturating_sub(1);
        if columns == 0
            || rows.iter().any(|row| row.len() != columns + 1 || !row.iter().all(|number| number.is_finite()))
        {
            return Err("the file has no rows of numbers, or rows of different sizes".to_owned());
        }
        let bounds = |column: usize| {
            let numbers = rows.iter().map(|row| row[column]);
            numbers.fold([f64::MAX, f64::MIN], |[least, most], number| [least.min(number), most.max(number)])
        };
        let bounds: Vec<[f64; 2]> = (0..columns).map(bounds).collect();
        let interval = |(number, [least, most]): (&f64, &[f64; 2])| {
            // A column of one number has one interval: the quotient is no number.
            let interval = (number - least) / (most - least) * BINS as f64;
            (interval as usize).min(BINS - 1)
        };
        let row = |row: &Vec<f64>| (row.iter().zip(&bounds).map(interval).collect(), row[columns] == label);
        Ok(Data { columns, rows: rows.iter().map(row).collect() })
    }

    /// Returns the rows that a worker trains: not every fifth row of all.
    pub(crate) fn trained(&self, worker: usize, workers: usize) -> Vec<&(Vec<usize>, bool)> {
        let trained = self.rows.iter().enumerate().filter(|(number, _)| number % 5 != 4).map(|(_, row)| row);
        trained.skip(worker).step_by(workers).collect()
    }

    /// Returns the share of the other rows whose labels are predicted.
    pub(crate) fn share_of_right(&self, weights: &[u64]) -> f64 {
        let others: Vec<_> = self.rows.iter().skip(4).step_by(5).collect();
        let right = others.iter().filter(|(row, label)| (probability(row, weights) > 0.5) == *label);
        right.count() as f64 / others.len().max(1) as f64
    }

    /// Returns the change of all weights that these rows want.
    pub(crate) fn gradient(&self, rows: &[&(Vec<usize>, bool)], weights: &[u64]) -> Vec<u64> {
        let mut gradient = vec![0_u64; weights.len()];
        for (row, label) in rows {
            let error = f64::from(u8::from(*label)) - probability(row, weights);
            let step = ((RATE * error * ONE) as i64).cast_unsigned();
            for (column, interval) in row.iter().enumerate() {
                let weight = &mut gradient[column * BINS + interval];
                *weight = weight.wrapping_add(step);
            }
        }
        gradient
    }
}

/// Returns the probability that a row has the label.
fn probability(row: &[usize], weights: &[u64]) -> f64 {
    let weights = row.iter().enumerate().map(|(column, interval)| weights[column * BINS + interval].cast_signed());
    1.0 / (1.0 + (-weights.sum::<i64>() as f64 / ONE).exp())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Data;

    /// Returns rows of three columns; the label is 1 if the first is greater than the second, with some exceptions.
    pub(crate) fn rows() -> String {
        let row = |number: u64| {
            let [one, other, third] = [7, 11, 13].map(|factor| number * factor * factor % 101);
            let label = u8::from((one > other) != number.is_multiple_of(40));
            format!("{one},{other},{third},{label}\n")
        };
        (0..400).map(row).fold("400,3,lower,greater\n".to_owned(), |text, row| text + &row)
    }

    #[test]
    fn rows_without_numbers_are_left_out_and_other_files_refused() {
        let data = Data::parse(&rows(), 1.0).unwrap();
        assert_eq!((data.columns, data.rows.len()), (3, 400));
        assert_eq!(data.trained(0, 1).len(), 320);
        for wrong in ["", "a,b\n", "1,2\n1,2,3\n", "1\n", "1,inf\n"] {
            assert!(Data::parse(wrong, 1.0).is_err(), "{wrong:?}");
        }
    }
}
