// Package skill loads, checks and shows Agent Skills: folders with a SKILL.md
// that tell a model how to do a task, in the form that agentskills.io specifies.
//
//	pdf/
//	├── SKILL.md       front matter (name, description, …), then markdown
//	├── scripts/       programs to run
//	├── references/    texts to read when they are needed
//	└── assets/        templates, pictures
//
// A model sees little of a skill until it needs more:
//
//	loader := skill.Merge(skill.In("~/.agents/skills"), skill.FS(bundled))
//	skills, diagnostics, err := loader.Load(ctx)
//	prompt += skill.Fragment(skills, 0)                               // names and descriptions
//	page, err := skill.View(skills, skill.Query{Skill: "pdf"})        // the body
//	page, err = skill.View(skills, skill.Query{Skill: "pdf", Section: "forms"})
//	page, err = skill.View(skills, skill.Query{Skill: "pdf", File: "references/forms.md"})
//
// When the conversation is summarised, [Reminder] tells again what was opened.
//
// # Loading
//
// A [Loader] finds skills: [One] the skill in a folder, [In] those directly in a
// folder, [Under] those at any depth below it, [FS] those of an fs.FS, [Memory] those
// it is given; [Merge] joins several. Load is lenient: it takes every skill a model could use and
// tells in [Diagnostic] values what is wrong. [Validate] is strict: the same
// reading, with any error counting, and the body checked too.
//
// Load keeps what it read. When nothing changed it only asks for the size and
// the time of the files and folders it looked at, and opens none. A file that is
// changed without a change of either is not read again.
//
// # Rules
//
// Errors that leave nothing to load:
//
//	skill-file            the folder has no SKILL.md (only [One] requires one)
//	unreadable            the file or folder cannot be read
//	symlink               a link leads out of what is loaded, or nowhere
//	too-large             over 1 MiB, or over 64 KiB of front matter
//	encoding              UTF-16
//	frontmatter-missing   the file does not begin with ---
//	frontmatter-unclosed  the closing --- is not there
//	frontmatter-fields    the front matter is not a mapping
//	yaml                  the front matter is not YAML, or grows without measure
//	description-missing
//	name-missing          without a folder whose name could be used
//	loader                one of several merged loaders failed
//
// Errors that a lenient reader lives with:
//
//	name-missing          the folder's name is used
//	name-length           more than 64 characters
//	name-characters       other than lowercase letters, digits and hyphens
//	name-hyphens          at an end, or two in a row
//	name-folder           the folder is called otherwise
//	description-length    more than 1024 characters
//	compatibility-length  empty or more than 500 characters
//	metadata-type         not a mapping of text to text
//	allowed-tools         neither text nor a list, or a parenthesis is left open
//	field-type            a list or a mapping where text has to be
//	duplicate-field       the first one counts
//	yaml-quoted           a value that needs quotes to be YAML and has none
//	frontmatter-position  blank lines before the front matter
//	encoding              bytes that are not UTF-8
//	skill-file            another spelling of SKILL.md
//
// Warnings: field-type and metadata-type (a number or the like was read as text),
// unknown-field, name-ascii, skill-file (it is called skill.md), description-when (it
// does not say when to use the skill), shadowed (a skill before has the name),
// body-empty, body-tokens (more than 5,000), link-missing, link-outside,
// link-anchor, file-missing (a mentioned file).
//
// # Trust
//
// Whoever writes a skill instructs the model: load skills only from those you
// would let write your prompts. What the package guards is the machine: reads
// stay inside the skill's folder (os.Root), links that lead out are refused, only
// regular files are read, sizes are bounded, and texts are escaped where they
// enter a prompt. It grants nothing: AllowedTools are wishes.
package skill
