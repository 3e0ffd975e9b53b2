package skill_test

import (
	"context"
	"fmt"
	"log"

	"github.com/kitbag-go/kitbag/skill"
)

func Example() {
	ctx := context.Background()
	skills, diagnostics, err := skill.In("testdata/example").Load(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range diagnostics {
		fmt.Println(d)
	}
	for _, s := range skills {
		fmt.Println(s.Name, s.AllowedTools)
	}
	fmt.Print(skills[0].Document().Outline())
	page, err := skill.View(ctx, skills, skill.Query{Skill: "release-notes", Section: "gather"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(page.Text)
	// Output:
	// release-notes [Bash(git log:*) Read]
	// tables []
	// - Release notes (#release-notes)
	//   - Gather (#gather)
	//   - Write (#write)
	// ## Gather
	//
	// Run `scripts/changes.sh` with the last tag. It prints one commit a line.
}

func ExampleParse() {
	_, diagnostics := skill.Parse("notes/SKILL.md", []byte("---\nname: My Notes\ndescription: Notes\n---\n# Notes\n"))
	for _, d := range diagnostics {
		fmt.Println(d)
	}
	// Output:
	// notes/SKILL.md:2: error: the name "My Notes" contains 'M'; only lowercase letters, digits and hyphens are allowed (name-characters)
	// notes/SKILL.md:3: warning: the description does not say when to use the skill; add a sentence that begins with Use when (description-when)
}

func ExampleValidate() {
	reports, err := skill.Validate(context.Background(), skill.Under("testdata/example"))
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range reports {
		fmt.Println(r.Valid, r.Loads, len(r.Diagnostics))
	}
	// Output:
	// true true 0
	// true true 0
}
