//! The name of the machine that measured a result.

use std::fs;

/// Returns the model of the processor and the number of cores.
pub fn machine() -> String {
    name(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

fn name(cpuinfo: &str) -> String {
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let field = |name: &str| {
        let (_, value) =
            cpuinfo.lines().filter_map(|line| line.split_once(':')).find(|(field, _)| field.trim() == name)?;
        Some(value.trim())
    };
    // Virtual machines hide the name of the model, but not its number.
    let number = field("cpu family").zip(field("model"));
    let number = number.map_or(String::new(), |(family, model)| format!(" family {family} model {model}"));
    format!("{}{number}, {cores} cores", field("model name").unwrap_or(std::env::consts::ARCH))
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn the_model_has_its_name_and_number() {
        let cpuinfo = "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nprocessor\t: 1\n";
        assert_eq!(name(cpuinfo), "AMD EPYC family 26 model 2, 2 cores");
    }
}
