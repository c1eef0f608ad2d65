package handlers

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestCalls checks that every plugin whose code can call an address or run a command
// declares this: fastadmit review and test do not run such plugins.
func TestCalls(t *testing.T) {
	calling := []string{"net/http", "os/exec", "k8s.io/client-go/rest", "k8s.io/client-go/tools/clientcmd"}
	for _, room := range []string{"kubeconfigclient", "jsonclient", "webhook"} {
		if _, err := os.Stat(filepath.Join("internal", room)); err != nil {
			t.Fatal(err)
		}
		calling = append(calling, "github.com/fastadmit/fastadmit/handlers/internal/"+room)
	}
	var saying, found []string
	for _, plugin := range InTree(DefaultOptions()) {
		if plugin.Calls {
			saying = append(saying, strings.ToLower(plugin.Name))
		}
	}
	folders, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder.Name(), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, imported := range parsed.Imports {
				name, _ := strconv.Unquote(imported.Path.Value)
				if slices.Contains(calling, name) && !slices.Contains(found, folder.Name()) {
					found = append(found, folder.Name())
				}
			}
		}
	}
	slices.Sort(saying)
	if slices.Sort(found); !slices.Equal(saying, found) {
		t.Errorf("got Calls of %q, want it of %q, which import one of %q", saying, found, calling)
	}
}
