// Package envref replaces references to environment variables in configurations of MCP servers and gateways.
package envref

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

var (
	reference  = lazy.Regexp(`\$\{([^${}]*)\}`)
	badDefault = lazy.Regexp(`\$\{(?:env:)?([^${}]*?):-[^}]*[${]`)
)

// Expand replaces ${VAR}, ${env:VAR}, ${VAR:-default} and the variables of VS Code in s. The variable must be set unless
// there is a default. dir is the directory of the configuration. The error is for the first reference without a value, or
// for a default with a $ or a brace.
func Expand(s, dir string) (string, error) {
	if m := badDefault().FindStringSubmatch(s); m != nil {
		return "", fmt.Errorf("the default of ${%s} has a $ or a brace, which a default cannot have; set %s in the environment, or change the default", m[1], m[1])
	}
	var first error
	out := reference().ReplaceAllStringFunc(s, func(m string) string {
		v, err := lookup(m[2:len(m)-1], dir)
		if first == nil {
			first = err
		}
		return v
	})
	return out, first
}

// Defaults replaces each reference by its default, or by nothing.
func Defaults(s string) string {
	return reference().ReplaceAllStringFunc(s, func(m string) string {
		_, def, _ := strings.Cut(m[2:len(m)-1], ":-")
		return def
	})
}

func lookup(expr, dir string) (string, error) {
	name, def, hasDefault := strings.Cut(expr, ":-")
	name = strings.TrimPrefix(name, "env:")
	switch name {
	case "workspaceFolder":
		return dir, nil
	case "workspaceFolderBasename":
		return filepath.Base(dir), nil
	case "userHome":
		return os.UserHomeDir()
	case "pathSeparator", "/":
		return string(filepath.Separator), nil
	}
	v, ok := os.LookupEnv(name)
	switch {
	case hasDefault && v == "":
		return def, nil
	case ok:
		return v, nil
	case strings.HasPrefix(name, "input:"):
		return "", fmt.Errorf("${%s} prompts the user, which is not supported; write ${NAME} and set NAME in the environment", expr)
	}
	return "", fmt.Errorf("the environment variable %s is not set; set it or write ${%s:-default}", name, name)
}
