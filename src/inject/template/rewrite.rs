//! Rewrites a parsed template before the engine runs it.
//!
//! The engine knows maps and lists; Istio's templates walk Go structs with getters, absent messages and typed maps. So every
//! walk along fields becomes a call of [`FIELD`], which implements these rules; before each node and at the beginning of
//! each loop's body stands a mark, and around each named template a call: they count, so that no template runs for ever.

use std::cell::RefCell;
use std::sync::Arc;

use super::calls::{ENTER, FIELD, FROM_PARENTHESIS, FROM_VALUE, LEAVE, PUT};
use super::functions;
use super::output_marks::NewMarks;
use gotmpl::parse::{
    ActionNode, BranchNode, CommandNode, DefineNode, Expr, ListNode, Node, Number, PipeNode, Pos,
    SmolStr, TextNode,
};

/// A name in a template that is not defined.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unknown {
    pub(super) line: usize,
    pub(super) message: String,
}

/// Rewrites trees; `functions` returns true for defined names, `templates` for defined templates.
pub(super) struct Rewriter<'a> {
    pub(super) functions: &'a dyn Fn(&str) -> bool,
    pub(super) templates: &'a dyn Fn(&str) -> bool,
    pub(super) marks: &'a RefCell<NewMarks>,
}

type Result<T> = std::result::Result<T, Unknown>;

impl Rewriter<'_> {
    /// A node begins.
    fn step(&self, pos: Pos) -> Node {
        let text = self.marks.borrow_mut().add(pos.line);
        Node::Text(TextNode { pos, text })
    }

    /// The body of a named template: it counts that it is entered and left.
    pub(super) fn definition(&self, define: DefineNode) -> Result<(String, ListNode)> {
        let pos = define.pos;
        let mut body = self.list(define.body)?;
        body.nodes.insert(0, call(pos, ENTER, Vec::new()));
        body.nodes.push(call(pos, LEAVE, Vec::new()));
        Ok((define.name.to_string(), body))
    }

    pub(super) fn list(&self, list: ListNode) -> Result<ListNode> {
        let mut nodes = Vec::with_capacity(list.nodes.len() * 2);
        for node in list.nodes {
            match node {
                Node::Text(_) | Node::Break(_) | Node::Continue(_) => nodes.push(node),
                Node::List(inner) => nodes.push(Node::List(self.list(inner)?)),
                // Collected apart.
                Node::Define(_) => {}
                Node::Action(action) => {
                    nodes.push(self.step(action.pos));
                    self.action(action, &mut nodes)?;
                }
                Node::If(branch) => {
                    nodes.push(self.step(branch.pos));
                    nodes.push(Node::If(self.branch(branch)?));
                }
                Node::With(branch) => {
                    nodes.push(self.step(branch.pos));
                    nodes.push(Node::With(self.branch(branch)?));
                }
                Node::Range(branch) => {
                    let pos = branch.pos;
                    nodes.push(self.step(pos));
                    let mut branch = self.branch(branch)?;
                    // Each turn counts, also that of an empty body.
                    branch.body.nodes.insert(0, self.step(pos));
                    nodes.push(Node::Range(branch));
                }
                Node::Template(mut template) => {
                    if !(self.templates)(&template.name) {
                        return Err(Unknown {
                            line: template.pos.line,
                            message: format!("template {:?} not defined", template.name.as_str()),
                        });
                    }
                    nodes.push(self.step(template.pos));
                    template.pipe = template.pipe.map(|pipe| self.pipe(pipe)).transpose()?;
                    nodes.push(Node::Template(template));
                }
            }
        }
        Ok(ListNode {
            pos: list.pos,
            nodes,
        })
    }

    fn action(&self, action: ActionNode, nodes: &mut Vec<Node>) -> Result<()> {
        let pos = action.pos;
        let changed = changed_variable(&action.pipe);
        let mut pipe = self.pipe(action.pipe)?;
        if let Some(changed) = changed {
            let (assignment, value) = changed.assign(pos, pipe);
            nodes.push(assignment);
            pipe = value;
        }
        if pipe.decl.is_empty() && may_be_object(&pipe) {
            let args = vec![Expr::Identifier(pos, functions::PRINTABLE.into())];
            pipe.commands.push(CommandNode { pos, args });
        }
        nodes.push(Node::Action(ActionNode { pos, pipe }));
        Ok(())
    }

    fn branch(&self, branch: BranchNode) -> Result<BranchNode> {
        Ok(BranchNode {
            pipe: self.pipe(branch.pipe)?,
            body: self.list(branch.body)?,
            else_body: branch.else_body.map(|body| self.list(body)).transpose()?,
            ..branch
        })
    }

    fn pipe(&self, pipe: PipeNode) -> Result<PipeNode> {
        let mut commands = Vec::with_capacity(pipe.commands.len());
        for command in pipe.commands {
            // A value piped into one of the engine's functions is weighed between.
            if let (false, Some(weigher)) = (commands.is_empty(), weigher(&command)) {
                let name = if command.args.len() == 1 {
                    weigher.first
                } else {
                    weigher.others
                };
                commands.push(CommandNode {
                    pos: command.pos,
                    args: vec![Expr::Identifier(command.pos, name.into())],
                });
            }
            commands.push(self.command(command)?);
        }
        Ok(PipeNode { commands, ..pipe })
    }

    fn command(&self, command: CommandNode) -> Result<CommandNode> {
        let weigher = weigher(&command);
        let mut args = command.args.into_iter();
        let mut made = Vec::with_capacity(args.len());
        if let Some(first) = args.next() {
            made.push(self.first(first, &mut args)?);
        }
        for arg in args {
            let pos = command.pos;
            let arg = self.expression(arg)?;
            made.push(match &weigher {
                Some(weigher) => {
                    let name = if made.len() == 1 {
                        weigher.first
                    } else {
                        weigher.others
                    };
                    Expr::Pipe(
                        pos,
                        pipe_of(pos, vec![Expr::Identifier(pos, name.into()), arg]),
                    )
                }
                None => arg,
            });
        }
        Ok(CommandNode {
            pos: command.pos,
            args: made,
        })
    }

    /// Rewrites the first expression of a command, which keeps its name in front: the engine calls by it.
    fn first(&self, first: Expr, args: &mut impl Iterator<Item = Expr>) -> Result<Expr> {
        let (pos, inner, fields) = match first {
            Expr::Chain(pos, inner, fields) => (pos, *inner, fields),
            other => return self.expression(other),
        };
        let inner = match inner {
            // `f.a` calls f with what follows, and walks along the result.
            Expr::Identifier(at, name) => {
                self.check_function(at, &name)?;
                let mut called = vec![Expr::Identifier(at, name)];
                for arg in args {
                    called.push(self.expression(arg)?);
                }
                Expr::Pipe(at, pipe_of(at, called))
            }
            inner => self.expression(inner)?,
        };
        Ok(walk(pos, FROM_PARENTHESIS, inner, &fields))
    }

    fn expression(&self, expression: Expr) -> Result<Expr> {
        Ok(match expression {
            Expr::Field(pos, fields) => walk(pos, FROM_VALUE, Expr::Dot(pos), &fields),
            // A variable forgets whether nil was a key that holds null, as a parenthesis does.
            Expr::Variable(pos, name, fields) if !fields.is_empty() => walk(
                pos,
                FROM_PARENTHESIS,
                Expr::Variable(pos, name, Vec::new()),
                &fields,
            ),
            Expr::Identifier(pos, name) => {
                self.check_function(pos, &name)?;
                Expr::Identifier(pos, name)
            }
            Expr::Pipe(pos, pipe) => Expr::Pipe(pos, self.pipe(pipe)?),
            Expr::Chain(pos, inner, fields) => {
                walk(pos, FROM_PARENTHESIS, self.expression(*inner)?, &fields)
            }
            other @ (Expr::Dot(_)
            | Expr::Variable(..)
            | Expr::String(..)
            | Expr::Number(..)
            | Expr::Bool(..)
            | Expr::Nil(_)) => other,
        })
    }

    fn check_function(&self, pos: Pos, name: &str) -> Result<()> {
        if (self.functions)(name) {
            return Ok(());
        }
        Err(Unknown {
            line: pos.line,
            message: format!("function {name:?} not defined"),
        })
    }
}

/// Returns true if a pipe may end with an object of fields, which an action cannot print.
fn may_be_object(pipe: &PipeNode) -> bool {
    let last = pipe
        .commands
        .last()
        .and_then(|command| command.args.first());
    match last {
        // Of the calls that the rewriter makes, a walk along fields returns objects.
        Some(Expr::Identifier(_, name)) => {
            name == FIELD || functions::PASSING.contains(&name.as_str())
        }
        Some(Expr::String(..) | Expr::Number(..) | Expr::Bool(..) | Expr::Nil(_)) | None => false,
        Some(
            Expr::Dot(_) | Expr::Variable(..) | Expr::Field(..) | Expr::Chain(..) | Expr::Pipe(..),
        ) => true,
    }
}

/// The calls that weigh the first and the other arguments of one of the engine's own functions.
struct Weigher {
    first: &'static str,
    others: &'static str,
}

fn weigher(command: &CommandNode) -> Option<Weigher> {
    let Some(Expr::Identifier(_, name)) = command.args.first() else {
        return None;
    };
    match name.as_str() {
        "printf" => Some(Weigher {
            first: functions::FORMAT,
            others: functions::TEXT,
        }),
        name if functions::HEAVY.contains(&name) => Some(Weigher {
            first: functions::TEXT,
            others: functions::TEXT,
        }),
        name if functions::LIGHT.contains(&name) => Some(Weigher {
            first: functions::SCALAR,
            others: functions::SCALAR,
        }),
        _ => None,
    }
}

/// `from.a.b` as a call.
fn walk(pos: Pos, from: i64, value: Expr, fields: &[SmolStr]) -> Expr {
    let mut args = vec![
        Expr::Identifier(pos, FIELD.into()),
        Expr::Number(pos, Number::Int(from)),
        value,
    ];
    args.extend(texts(pos, fields));
    Expr::Pipe(pos, pipe_of(pos, args))
}

/// Names as arguments.
fn texts(pos: Pos, names: &[SmolStr]) -> impl Iterator<Item = Expr> {
    names
        .iter()
        .map(move |name| Expr::String(pos, Arc::from(name.as_str())))
}

/// A variable whose map an action changes.
struct ChangedVariable {
    name: SmolStr,
    /// The path of the map below it.
    fields: Vec<SmolStr>,
}

/// Sprig's `set` and `merge` change the map that a variable holds; here they return a new one, so the variable gets it,
/// or a copy of its own map with the new one in its place.
fn changed_variable(pipe: &PipeNode) -> Option<ChangedVariable> {
    let [CommandNode { args, .. }] = pipe.commands.as_slice() else {
        return None;
    };
    let [
        Expr::Identifier(_, function),
        Expr::Variable(_, name, fields),
        ..,
    ] = args.as_slice()
    else {
        return None;
    };
    let is_changed = matches!(function.as_str(), "set" | "merge" | "mergeOverwrite")
        // The data belongs to all.
        && name != "$";
    is_changed.then(|| ChangedVariable {
        name: name.clone(),
        fields: fields.clone(),
    })
}

impl ChangedVariable {
    /// Returns the assignment of the changed map, and the pipe that reads it for the rest of the action.
    fn assign(self, pos: Pos, mut pipe: PipeNode) -> (Node, PipeNode) {
        let Self { name, fields } = self;
        let whole = || Expr::Variable(pos, name.clone(), Vec::new());
        let current = if fields.is_empty() {
            whole()
        } else {
            walk(pos, FROM_PARENTHESIS, whole(), &fields)
        };
        let value = pipe_of(pos, vec![current]);
        if !fields.is_empty() {
            let mut args = vec![Expr::Identifier(pos, PUT.into()), whole()];
            args.extend(texts(pos, &fields));
            args.push(Expr::Pipe(
                pos,
                PipeNode {
                    pos,
                    decl: Vec::new(),
                    commands: std::mem::take(&mut pipe.commands),
                    is_assign: false,
                },
            ));
            pipe.commands = vec![CommandNode { pos, args }];
        }
        let rest = PipeNode {
            decl: pipe.decl,
            is_assign: pipe.is_assign,
            ..value
        };
        let assignment = Node::Action(ActionNode {
            pos,
            pipe: PipeNode {
                decl: vec![name],
                is_assign: true,
                ..pipe
            },
        });
        (assignment, rest)
    }
}

fn pipe_of(pos: Pos, args: Vec<Expr>) -> PipeNode {
    PipeNode {
        pos,
        decl: Vec::new(),
        commands: vec![CommandNode { pos, args }],
        is_assign: false,
    }
}

/// Builds a call that prints nothing.
fn call(pos: Pos, name: &str, mut args: Vec<Expr>) -> Node {
    args.insert(0, Expr::Identifier(pos, name.into()));
    Node::Action(ActionNode {
        pos,
        pipe: pipe_of(pos, args),
    })
}
