//! `xdptun.toml(5)`, made from docs/configuration.md.

use std::mem::take;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::escape;

const MARKDOWN: &str = include_str!("../../../docs/configuration.md");

const HEAD: &str = "\
.TH XDPTUN.TOML 5
.SH NAME
xdptun.toml \\- the configuration file of xdptun(8), /etc/xdptun/config.toml
.SH DESCRIPTION
";

/// A page that is being written.
#[derive(Default)]
struct Page {
    text: String,
    /// The line, heading or cell at hand.
    line: String,
    is_code: bool,
    columns: Vec<String>,
    cells: Vec<String>,
}

/// The page, for man(7).
pub fn page() -> String {
    let mut page = Page {
        text: HEAD.to_owned(),
        ..Page::default()
    };
    // How the document is made is nothing for readers of the manual.
    let paragraphs = MARKDOWN.split("\n\n");
    let paragraphs = paragraphs.filter(|text| !text.starts_with("This page is generated"));
    let markdown = Vec::from_iter(paragraphs).join("\n\n");
    for event in Parser::new_ext(&markdown, Options::ENABLE_TABLES) {
        page.add(event);
    }
    page.text
}

impl Page {
    fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Text(text) if self.is_code => self.text += &escape(&text),
            Event::Text(text) => self.line += &escape(&text),
            Event::Code(code) => self.bold(&escape(&code)),
            Event::SoftBreak | Event::HardBreak => self.line.push('\n'),
            Event::Start(Tag::Emphasis) => self.line += "\\fI",
            Event::End(TagEnd::Emphasis) => self.line += "\\fR",
            Event::Start(Tag::CodeBlock(_)) => {
                self.is_code = true;
                self.text += ".PP\n.nf\n.RS 4\n";
            }
            Event::End(TagEnd::CodeBlock) => {
                self.is_code = false;
                self.text += ".RE\n.fi\n";
            }
            Event::Start(Tag::Item) => self.text += ".IP \\(bu 2\n",
            Event::Start(Tag::Paragraph) => self.text += ".PP\n",
            Event::End(TagEnd::Paragraph | TagEnd::Item) => self.end_line(),
            Event::End(TagEnd::Heading(level)) => self.heading(level),
            Event::End(TagEnd::TableCell) => self.cells.push(take(&mut self.line)),
            Event::End(TagEnd::TableHead) => self.columns = take(&mut self.cells),
            Event::End(TagEnd::TableRow) => self.row(),
            _ => {}
        }
    }

    fn bold(&mut self, text: &str) {
        self.line += &format!("\\fB{text}\\fR");
    }

    fn end_line(&mut self) {
        for line in take(&mut self.line).lines() {
            // Such a line would be a request to roff.
            if line.starts_with(['.', '\'']) {
                self.text += "\\&";
            }
            self.text += line;
            self.text.push('\n');
        }
    }

    fn heading(&mut self, level: HeadingLevel) {
        let heading = take(&mut self.line);
        match level {
            // The name of the page.
            HeadingLevel::H1 => {}
            HeadingLevel::H2 => self.text += &format!(".SH {heading}\n"),
            _ => self.text += &format!(".SS {heading}\n"),
        }
    }

    /// A row of a table: the key, what it means, and the other columns by their names.
    fn row(&mut self) {
        let cells = take(&mut self.cells).into_iter();
        let mut of_column = self.columns.clone().into_iter().zip(cells);
        let Some((_, key)) = of_column.next() else {
            return;
        };
        self.text += &format!(".TP\n{key}\n");
        let (meaning, others): (Vec<_>, Vec<_>) =
            of_column.partition(|(column, _)| column == "meaning");
        for (_, cell) in meaning {
            self.line = cell;
            self.end_line();
        }
        for (column, cell) in others {
            if !cell.is_empty() {
                self.text += &format!(".br\n{column}: {cell}\n");
            }
        }
    }
}
