//! The commands of a document.
//!
//! Commands are the lines of code blocks marked `sh`, and of indented ones. A block
//! without a mark right after them is what the last of them prints. A block of another
//! language that begins with a comment of a path is the file of that path.

use std::collections::VecDeque;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use xdptun_lab::workspace;

/// What a document tells its reader to do.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// To run this, which prints that.
    Command(String, Vec<String>),
    /// To write this to a file of that path.
    File(String, String),
}

/// What is left to do of a document.
#[derive(Debug)]
pub struct Page {
    name: String,
    steps: VecDeque<Step>,
}

impl Page {
    /// Reads a document of the tree.
    pub fn open(name: &str) -> Result<Self> {
        let path = workspace::root().join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("{name}: cannot read"))?;
        Ok(Self {
            name: name.to_owned(),
            steps: steps(&text),
        })
    }

    /// Whether it tells to do anything.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Takes the next command, which has to be this one; what the document shows of
    /// its output.
    pub fn command(&mut self, command: &str) -> Result<Vec<String>> {
        match self.steps.pop_front() {
            Some(Step::Command(found, output)) if found == command => Ok(output),
            found => bail!("{}: not `{command}` is next, but {found:#?}", self.name),
        }
    }

    /// Takes commands that are not run, and says why.
    pub fn pass_over(&mut self, reason: &str, commands: &[&str]) -> Result<()> {
        for command in commands {
            println!("{}: not run: `{command}`: {reason}", self.name);
            let output = self.command(command)?;
            ensure!(output.is_empty(), "{}: `{command}` shows output", self.name);
        }
        Ok(())
    }

    /// Takes the next file, which has to have this path; what shall be in it.
    pub fn file(&mut self, path: &str) -> Result<String> {
        match self.steps.pop_front() {
            Some(Step::File(found, text)) if found == path => Ok(text),
            found => bail!("{}: not the file {path} is next, but {found:#?}", self.name),
        }
    }

    /// Checks that nothing is left.
    pub fn end(self) -> Result<()> {
        let Self { name, steps } = self;
        ensure!(steps.is_empty(), "{name}: no test knows {steps:#?}");
        Ok(())
    }
}

/// The texts between backquotes of a document of the tree.
pub fn inline_code(name: &str) -> Result<Vec<String>> {
    let path = workspace::root().join(name);
    let text = fs::read_to_string(&path).with_context(|| format!("{name}: cannot read"))?;
    let code = Parser::new(&text).filter_map(|event| match event {
        Event::Code(code) => Some(code.replace('\n', " ")),
        _ => None,
    });
    Ok(code.collect())
}

/// The commands in the blocks of a document of the tree.
pub fn block_commands(name: &str) -> Result<Vec<String>> {
    let commands = Page::open(name)?
        .steps
        .into_iter()
        .filter_map(|step| match step {
            Step::Command(command, _) => Some(command),
            Step::File(..) => None,
        });
    Ok(commands.collect())
}

fn steps(text: &str) -> VecDeque<Step> {
    let mut steps = VecDeque::new();
    let mut block = None;
    let mut after_commands = false;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => block = Some((kind, String::new())),
            Event::Text(text) if let Some((_, code)) = &mut block => code.push_str(&text),
            Event::End(TagEnd::CodeBlock) => {
                let Some((kind, code)) = block.take() else {
                    continue;
                };
                let language = match &kind {
                    CodeBlockKind::Indented => "sh",
                    CodeBlockKind::Fenced(language) => language,
                };
                match (language, steps.back_mut()) {
                    ("sh", _) => steps.extend(commands(&code)),
                    ("", Some(Step::Command(_, output))) if after_commands => {
                        output.extend(code.lines().map(str::to_owned));
                    }
                    _ => steps.extend(file(&code)),
                }
                after_commands = language == "sh";
            }
            _ => after_commands = false,
        }
    }
    steps
}

/// The commands of a block, without comments, each on one line.
fn commands(code: &str) -> Vec<Step> {
    let code = code.replace("\\\n", " ");
    let lines = code.lines().map(|line| {
        let command = line.split_once("  #").map_or(line, |(command, _)| command);
        command.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    lines
        .filter(|command| !command.is_empty() && !command.starts_with('#'))
        .map(|command| Step::Command(command, Vec::new()))
        .collect()
}

fn file(code: &str) -> Option<Step> {
    let (first, _) = code.split_once('\n')?;
    let path = first.strip_prefix("# ")?;
    let is_path = path.starts_with('/') && !path.contains(' ');
    is_path.then(|| Step::File(path.to_owned(), code.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_commands_their_output_and_files() {
        let text = "\
```
a drawing
```
1. Words.

   ```sh
   one --option \\
       value   # why
   # nothing
   two 'a # b'
   ```

   ```
   printed
     twice
   ```

    three

Words.

```
no output
```

```toml
# /etc/file
key = 1
```

```toml
key = 2
```
";
        let command = |text: &str, output: &[&str]| {
            let output = output.iter().map(ToString::to_string).collect();
            Step::Command(text.to_owned(), output)
        };
        let expected = [
            command("one --option value", &[]),
            command("two 'a # b'", &["printed", "  twice"]),
            Step::File("/etc/file".into(), "# /etc/file\nkey = 1\n".into()),
        ];
        assert_eq!(steps(text), expected);
        let indented = "Words:\n\n    three\n";
        assert_eq!(steps(indented), [command("three", &[])]);
    }
}
