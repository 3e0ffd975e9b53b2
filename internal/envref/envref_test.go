package envref

import (
	"testing"
)

// TestExpand checks what references become, and that a reference that cannot be replaced is an error: otherwise a server
// would get its text as the value.
func TestExpand(t *testing.T) {
	t.Setenv("KITBAG_TEST_A", "a")
	t.Setenv("KITBAG_TEST_EMPTY", "")
	for s, want := range map[string]string{
		"x":                                      "x",
		"${KITBAG_TEST_A}-$${env:KITBAG_TEST_A}": "a-$a",
		"${KITBAG_TEST_EMPTY}${KITBAG_TEST_EMPTY:-b}":   "b",
		"${KITBAG_TEST_NONE:-http://x:1/}":              "http://x:1/",
		"${workspaceFolder} ${workspaceFolderBasename}": "/w/d d",
		"a ${ b $ { c }":                        "a ${ b $ { c }",
		"${KITBAG_TEST_A} ${KITBAG_TEST_NONE}":  "the environment variable KITBAG_TEST_NONE is not set; set it or write ${KITBAG_TEST_NONE:-default}",
		"${KITBAG_TEST_NONE:-${KITBAG_TEST_A}}": "the default of ${KITBAG_TEST_NONE} has a $ or a brace, which a default cannot have; set KITBAG_TEST_NONE in the environment, or change the default",
		"${KITBAG_TEST_A:-pa$word}":             "the default of ${KITBAG_TEST_A} has a $ or a brace, which a default cannot have; set KITBAG_TEST_A in the environment, or change the default",
		"${KITBAG_TEST_A:-{}}":                  "the default of ${KITBAG_TEST_A} has a $ or a brace, which a default cannot have; set KITBAG_TEST_A in the environment, or change the default",
	} {
		got, err := Expand(s, "/w/d")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
}
