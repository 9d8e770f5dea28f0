//! Pictures of results: a bar for each median, and a line for its spread.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::statistics::Summary;
use crate::table::number;

/// Pixels.
const WIDTH: u32 = 860;
const ROW: u32 = 26;
const LABELS: u32 = 300;
const TITLE: u32 = 34;
const AXIS: u32 = 52;

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// The text before it.
    pub label: String,
    /// Bars with the same number have the same colour.
    pub colour: usize,
    /// Its length.
    pub summary: Summary,
}

/// A picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// The text above.
    pub title: String,
    /// The unit of the axis.
    pub unit: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

impl Bars {
    /// A picture without bars.
    pub fn new(title: &str, unit: &str) -> Self {
        Self {
            title: title.to_owned(),
            unit: unit.to_owned(),
            bars: Vec::new(),
        }
    }

    /// Adds a bar, unless there is nothing to show.
    pub fn add(&mut self, label: impl Into<String>, colour: usize, summary: Option<Summary>) {
        self.bars.extend(summary.map(|summary| Bar {
            label: label.into(),
            colour,
            summary,
        }));
    }

    /// The picture as SVG.
    pub fn svg(&self) -> Result<String> {
        let mut text = String::new();
        // Errors of the library borrow what it draws on.
        self.draw(&mut text).map_err(|error| anyhow!("{error}"))?;
        Ok(text)
    }

    fn draw(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error + '_>> {
        let rows = self.bars.len() as u32;
        let size = (WIDTH, TITLE + rows * ROW + AXIS);
        let area = SVGBackend::with_string(text, size).into_drawing_area();
        area.fill(&WHITE)?;
        let most = self.bars.iter().map(|bar| bar.summary.max);
        let most = most.fold(f64::MIN_POSITIVE, f64::max) * 1.05;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 18))
            .margin_right(20)
            .set_label_area_size(LabelAreaPosition::Left, LABELS)
            .set_label_area_size(LabelAreaPosition::Bottom, AXIS)
            .build_cartesian_2d(0.0..most, f64::from(rows)..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .x_max_light_lines(1)
            .x_desc(&self.unit)
            .x_label_formatter(&|value| number_of_tick(*value))
            .label_style(("sans-serif", 13))
            .draw()?;
        for (at, bar) in self.bars.iter().enumerate() {
            let (top, Summary { median, min, max }) = (at as f64, bar.summary);
            let colour = Palette99::pick(bar.colour);
            let corners = [(0.0, top + 0.2), (median, top + 0.8)];
            chart.draw_series([Rectangle::new(corners, colour.mix(0.7).filled())])?;
            let line = vec![(min, top + 0.5), (max, top + 0.5)];
            chart.draw_series([PathElement::new(line, BLACK)])?;
            let (x, y) = chart.backend_coord(&(0.0, top + 0.2));
            let label = format!("{}: {}", bar.label, number(median));
            area.draw_text(
                &label,
                &("sans-serif", 13).into_text_style(&area),
                (x - LABELS as i32 + 8, y),
            )?;
        }
        area.present()?;
        Ok(())
    }
}

/// Round numbers need no fraction.
fn number_of_tick(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else {
        number(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_shows_every_bar_with_its_label() {
        let mut bars = Bars::new("Title", "unit");
        bars.add("direct", 0, Summary::of([9.0, 10.0, 12.0]));
        bars.add("xdptun", 1, Summary::of([8.0]));
        bars.add("absent", 2, None);
        let svg = bars.svg().unwrap();
        for text in ["Title", "unit", "direct: 10.0", "xdptun: 8.00"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("absent"));
        // The ground, and two bars.
        assert_eq!(svg.matches("<rect").count(), 3, "{svg}");
    }
}
