// Package skill loads, validates and renders Agent Skills: folders with a SKILL.md
// that tell a model how to do a task, as specified at agentskills.io.
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
// When the conversation is summarised, [Reminder] lists the skills that were opened.
//
// # Loading
//
// A [Loader] finds skills: [One] the skill in a folder, [In] those directly in a
// folder, [Under] those at any depth below it, [FS] those of an fs.FS, [Memory] those
// in its arguments; [Merge] joins several. Load is lenient: it returns every skill that a
// model could use, and reports what is wrong as [Diagnostic] values. [Validate] is strict:
// it reads the same way, counts any error, and also checks the body.
//
// Load caches. It checks the size and time of the files and folders it read before, and
// opens nothing if they are unchanged. So a file that was changed without a change of
// either is not read again.
//
// # Rules
//
// Fatal errors; the skill is not loaded:
//
//	skill-file            the folder has no SKILL.md (only [One] requires one)
//	unreadable            the file or folder cannot be read
//	symlink               a link leads out of the loaded folder, or its target is missing
//	too-large             over 1 MiB, or over 64 KiB of front matter
//	encoding              UTF-16
//	frontmatter-missing   the file does not begin with ---
//	frontmatter-unclosed  the closing --- is missing
//	frontmatter-fields    the front matter is not a mapping
//	yaml                  the front matter is not YAML, or its aliases expand too far
//	description-missing
//	name-missing          and no folder whose name could be used
//	loader                one of several merged loaders failed
//
// Errors that do not prevent loading:
//
//	name-missing          the folder's name is used
//	name-length           more than 64 characters
//	name-characters       other than lowercase letters, digits and hyphens
//	name-hyphens          at an end, or two in a row
//	name-folder           differs from the folder's name
//	description-length    more than 1024 characters
//	compatibility-length  empty or more than 500 characters
//	metadata-type         not a mapping of text to text
//	allowed-tools         neither text nor a list, or a parenthesis is not closed
//	field-type            a list or a mapping where text is required
//	duplicate-field       the first one counts
//	yaml-quoted           a value that needs quotes to be YAML and has none
//	frontmatter-position  blank lines before the front matter
//	encoding              bytes that are not UTF-8
//	skill-file            another spelling of SKILL.md
//
// Warnings: field-type and metadata-type (a number or the like was read as text),
// unknown-field, name-ascii, skill-file (the file is called skill.md), description-when (it
// does not say when to use the skill), shadowed (an earlier skill has the same name),
// body-empty, body-tokens (more than 5,000), link-missing, link-outside,
// link-anchor, file-missing (a mentioned file).
//
// # Trust
//
// The author of a skill instructs the model: load skills only from those you would let
// write your prompts. The package protects the machine: reads stay inside the skill's
// folder (os.Root), links that lead out are refused, only regular files are read, sizes
// are bounded, and texts are escaped in prompts. It grants nothing: AllowedTools are only
// requests.
package skill
