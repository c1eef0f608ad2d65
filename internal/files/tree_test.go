package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/files"
)

// TestTree has paths and links that lead out of a folder, and others that do not.
func TestTree(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "dir")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "sub"), 0o700), os.MkdirAll(filepath.Join(base, "dir2"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dir/sub/a.yaml", "dir2/a.yaml", "a.yaml"} {
		if err := os.WriteFile(filepath.Join(base, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"in.yaml": "sub/a.yaml", "out.yaml": "../a.yaml", "absolute.yaml": filepath.Join(dir, "sub/a.yaml"), "folder": "../dir2",
		"twice.yaml": "out.yaml", "sub/back.yaml": "../in.yaml",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(base)
	f := func(tree files.Tree, name, want string) {
		t.Helper()
		content, err := tree.Read(name)
		_, statErr := tree.Stat(name)
		got := string(content)
		if err != nil {
			got = err.Error()
			if path, ok := errors.AsType[*fs.PathError](err); !ok || path.Path != name || statErr == nil {
				t.Errorf("%s in %q: got %v, and of Stat %v, want errors of %s", name, tree, err, statErr, name)
			}
		}
		if want == "" && err == nil || !strings.Contains(got, want) {
			t.Errorf("%s in %q: got %s, want %s", name, tree, got, want)
		}
	}
	const out = "leads out of the folder"
	for _, tree := range []files.Tree{"dir", files.Tree(dir), "dir/", "dir/sub/.."} {
		f(tree, "dir/sub/a.yaml", "dir/sub/a.yaml")
		f(tree, "dir2/../dir/sub/a.yaml", "dir/sub/a.yaml")
		f(tree, filepath.Join(dir, "sub/a.yaml"), "dir/sub/a.yaml")
		f(tree, "dir/in.yaml", "dir/sub/a.yaml")
		f(tree, "dir/sub/back.yaml", "dir/sub/a.yaml")
		f(tree, "a.yaml", out)
		f(tree, "dir/../a.yaml", out)
		f(tree, "dir2/a.yaml", out) // the name begins with the name of the folder
		f(tree, "/etc/hostname", out)
		f(tree, "dir/out.yaml", out)
		f(tree, "dir/twice.yaml", out)
		f(tree, "dir/absolute.yaml", out)
		f(tree, "dir/folder/a.yaml", out)
		f(tree, "dir/none.yaml", "no such file")
		if _, err := tree.ReadFolder("dir/folder", ".yaml"); err == nil || !strings.Contains(err.Error(), out) {
			t.Errorf("got %v of a link to a folder", err)
		}
		if _, err := tree.ReadFolder("dir", ".yaml"); err == nil || !strings.Contains(err.Error(), out) {
			t.Errorf("got %v of a folder with a link out of it", err)
		}
		if got, err := tree.ReadFolder("dir/sub", ".yaml"); err != nil || len(got) != 2 {
			t.Errorf("got %v, %v, want two files", got, err)
		}
		if err := tree.CheckLinks(); err == nil || strings.Count(err.Error(), out) != 4 {
			t.Errorf("got %v, want errors of the four links that lead out or are absolute", err)
		}
	}
	f("", "dir/out.yaml", "a.yaml")
	f("", "dir/folder/a.yaml", "dir2/a.yaml")
	if _, err := files.Tree("none").Read("none/a.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v of a folder that is not there", err)
	}
	if got := files.TreeOf("dir/in.yaml") + files.TreeOf("none") + files.Everywhere("dir"); got != "" {
		t.Errorf("got %q of a file, want all files", got)
	}
	if got := files.TreeOf("dir"); got != "dir" {
		t.Errorf("got %q of a folder, want it", got)
	}
}
