package redact_test

import (
	"fmt"

	"github.com/kitbag-go/kitbag/redact"
)

func Example() {
	r, err := redact.New(append(redact.Rules(), redact.Literal("door-code", "4711-0815"))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Text("The door opens with 4711-0815, the database at postgres://app:hunter2@db:5432/x."))

	s := r.Stream()
	for _, piece := range []string{"The code is 47", "11-08", "15", ", don't tell."} {
		fmt.Printf("%q ", s.Write(piece))
	}
	fmt.Printf("%q\n", s.Close())
	// Output:
	// The door opens with [redacted: door-code], the database at postgres[redacted: url-password]db:5432/x.
	// "The code is " "" "" "[redacted: door-code], don't tell." ""
}
