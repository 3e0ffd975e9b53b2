package shell

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// TestComputedSecrets checks commands that show ~/.docker/config.json, with each part of its name written in many
// ways. In testdata/computed.txt D stands for the directory, N for the name in it, and P for the path.
func TestComputedSecrets(t *testing.T) {
	root := t.TempDir()
	home, work := filepath.Join(root, "h1"), filepath.Join(root, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, home, map[string]string{".docker/config.json": "{}"})
	at := pathrule.Place{Cwd: work, Home: home, Dirs: []string{work}}
	parts := map[string][]string{}
	for _, line := range lines(t, "computed.txt") {
		kind, text, _ := strings.Cut(line, " ")
		parts[kind] = append(parts[kind], strings.ReplaceAll(text, "ROOT", root))
	}
	i := 0
	for _, h := range parts["home"] {
		for _, d := range parts["dir"] {
			for _, name := range parts["name"] {
				for _, command := range parts["command"] {
					if i++; i%11 != 0 { // all of them take a minute
						continue
					}
					dir := h + "/" + d
					cmd := parts["before"][0] + strings.NewReplacer("PWD", "PWD", "P", dir+"/"+name, "D", dir, "N", name).Replace(command)
					if a := Analyze(cmd, at); !asks(a, at) {
						t.Errorf("%q needs no approval", cmd)
					}
				}
			}
		}
	}
}
