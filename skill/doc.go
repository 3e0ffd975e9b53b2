// Package skill loads, validates and renders Agent Skills: folders with a SKILL.md
// that tell a model how to do a task, as specified at agentskills.io.
//
//	pdf/
//	├── SKILL.md       front matter (name, description, …), then markdown
//	├── scripts/       programs to run
//	├── references/    texts to read when they are needed
//	└── assets/        templates, images
//
// A model sees little of a skill until it needs more:
//
//	loader := skill.Merge(skill.In("~/.agents/skills"), skill.FS(bundled))
//	skills, diagnostics, err := loader.Load(ctx)
//	prompt += skill.Fragment(skills, 0)                               // names and descriptions
//	page, err := skill.View(ctx, skills, skill.Query{Skill: "pdf"})        // the body
//	page, err = skill.View(ctx, skills, skill.Query{Skill: "pdf", Section: "forms"})
//	page, err = skill.View(ctx, skills, skill.Query{Skill: "pdf", File: "references/forms.md"})
//
// When the conversation is summarised, [Reminder] lists the skills that were opened.
//
// # Loading
//
// A [Loader] finds skills: [One] the skill in a folder, [In] the skills directly below a folder, [Under] at
// any depth below a folder, [FS] in an fs.FS, [Memory] in its arguments; [Merge] joins loaders. Load is lenient:
// it returns every skill that a model could use, and reports what is wrong as [Diagnostic] values. [Validate] is
// strict: it reports a skill with any error as invalid, and also checks the body. [Diagnostic] lists the rules.
//
// Load caches. It checks the size and time of the files and folders it read before, and opens nothing if they are
// unchanged. A change that keeps both size and time goes unnoticed. [Watch] yields the skills when they have changed.
//
// # Trust
//
// The author of a skill instructs the model: load skills only from those you would let write your prompts. The
// package protects the machine: reads stay inside the skill's folder (os.Root), links that lead out are refused,
// only regular files are read, sizes are bounded, and texts are escaped in prompts. It grants nothing:
// AllowedTools are only requests.
package skill
