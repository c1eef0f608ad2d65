package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeLimits writes a package with these declarations and returns its folder, whose last part is "box".
func writeLimits(t *testing.T, declarations string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "box")
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		text := "package box\n\nimport (\n\t\"time\"\n\t\"example.com/other\"\n)\n" + declarations
		err = os.WriteFile(filepath.Join(dir, "box.go"), []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLimitTable(t *testing.T) {
	f := func(declarations, constants, want string) {
		t.Helper()
		got, err := limitTable("docs/limits.md", writeLimits(t, declarations)+" "+constants)
		if err != nil {
			t.Fatal(err)
		}
		if _, rows, _ := strings.Cut(got, "|---|---|---|\n"); rows != want {
			t.Errorf("%s\ngot\n%swant\n%s", declarations, rows, want)
		}
	}
	f("// bodyMax is the largest body: a < b.\nconst bodyMax = 32 << 20", "bodyMax",
		"| `box.bodyMax` | 32 MiB | The largest body: a &lt; b. |\n")
	f("// bodyMax bounds\n// a body.\nconst bodyMax = 1 << 30", "bodyMax", "| `box.bodyMax` | 1 GiB | bodyMax bounds a body. |\n")
	f("const bodyBytesMax = 640 // as text", "bodyBytesMax", "| `box.bodyBytesMax` | 640 bytes | as text |\n")
	f("// a.\nconst nodesMax = 1024", "nodesMax", "| `box.nodesMax` | 1024 | a. |\n")
	f("// a.\nconst opsMax = 1_131_072", "opsMax", "| `box.opsMax` | 1,131,072 | a. |\n")
	f("// a.\nconst wait = 1500 * time.Millisecond", "wait", "| `box.wait` | 1500 ms | a. |\n")
	f("// a.\nconst wait = 90 * time.Second", "wait", "| `box.wait` | 90 s | a. |\n")
	f("// a.\nconst wait = time.Hour", "wait", "| `box.wait` | 1 h | a. |\n")
	f("// a.\nconst share, partShare = 4, 3.0 / 8", "partShare", "| `box.partShare` | 3/8 | a. |\n")
	f("// a.\nconst smallShare = 16", "smallShare", "| `box.smallShare` | 1/16 | a. |\n")
	// A value may depend on other constants. Imports that fail do not matter.
	f("// a.\nconst total = 4 * eachBytes + 2 << 20\nconst eachBytes = 1 << 20\nvar _ = other.Thing{}", "total",
		"| `box.total` | 6 MiB | a. |\n")
	// Constants that share a comment share a row.
	shared := "const (\n// min and max bound it.\nmin = 1\nmax = 2\n// other is another.\nother = 3\n)"
	f(shared, "min max other", "| `box.min`, `box.max` | 1, 2 | min and max bound it. |\n| `box.other` | 3 | Another. |\n")
}

func TestLimitTableErrors(t *testing.T) {
	f := func(declarations, constants, want string) {
		t.Helper()
		got, err := limitTable("docs/limits.md", writeLimits(t, declarations)+constants)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q and error %v, want one with %q", declarations, got, err, want)
		}
	}
	f("// a.\nconst known = 1", " known unknown", "want a constant unknown")
	f("const bare = 1", " bare", "want a constant bare with a comment")
	f("const (\n// first is documented.\nfirst = 1\nsecond = 2\n)", " second", "want a constant second with a comment")
	f("// a.\nconst foreign = other.Max", " foreign", "want a constant foreign")
	f("// a.\nconst known = 1", "", "want a folder and its constants")
}

func TestBlockErrors(t *testing.T) {
	g := &generator{}
	f := func(what, want string) {
		t.Helper()
		_, err := g.document("README.md", "<!-- generated: "+what)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", what, err, want)
		}
	}
	f("tables -->\n<!-- end -->", `got "tables", want plugins`)
	f("flags serve -->\n", "of which 0 end with")
	f("flags nothing -->\n<!-- end -->", "unknown command")
	f("file nothing.yaml -->\n<!-- end -->", "nothing.yaml")
}
