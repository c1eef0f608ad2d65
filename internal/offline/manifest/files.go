package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/internal/files"
)

// Extensions are the extensions of the files that Read reads in a folder. They are those of
// kubectl (k8s.io/cli-runtime pkg/resource FileExtensions).
var Extensions = []string{".json", ".yaml", ".yml"}

// fileBytesMax is the largest file that Read reads in a Tree, as for files with the state of a
// cluster: 50,000 Pods of 10 KB.
const fileBytesMax = 512 << 20

// A file is one to read.
type file struct {
	name    string
	tree    files.Tree
	hidden  bool // it, or a folder below the one that was named, begins with a dot
	content []byte
	err     error
}

// Read reads objects from files, from folders and their subfolders, and from stdin, if it is
// not nil, for the path "-". A file or document that cannot be read is an Item with a Fault; the others
// are read nevertheless. Items are in the order of paths; those of a folder are in the
// order of the file names, and those of a file in the order of the text. Folders named .git
// are skipped. In other files and folders whose names begin with a dot, which "kubectl apply
// --filename" reads as well, documents that are no Kubernetes objects are skipped. tree
// returns the Tree for a path; what leads out of it is an Item with a Fault.
func Read(paths []string, stdin io.Reader, tree func(path string) files.Tree) []Item {
	var all []file
	for _, path := range paths {
		all = append(all, expand(path, stdin, tree(path))...)
	}
	items := make([][]Item, len(all))
	parallel(len(all), func(i int) {
		f := &all[i]
		f.read()
		if f.err != nil {
			items[i] = []Item{faulty(Source{File: f.name}, f.err)}
			return
		}
		items[i] = Parse(f.name, f.content)
		f.content = nil
		if f.hidden {
			items[i] = slices.DeleteFunc(items[i], isNoObject)
		}
	})
	return slices.Concat(items...)
}

// read reads the file, if that is not done.
func (f *file) read() {
	switch {
	case f.err != nil || f.content != nil:
	case f.tree == "": // also a pipe
		f.content, f.err = os.ReadFile(f.name)
	default:
		f.content, f.err = f.tree.ReadAtMost(f.name, fileBytesMax)
	}
}

// expand returns the files that a path stands for.
func expand(path string, stdin io.Reader, tree files.Tree) []file {
	if path == "-" && stdin != nil {
		content, err := io.ReadAll(stdin)
		return []file{{name: Stdin, content: append([]byte{}, content...), err: err}}
	}
	info, err := tree.Stat(path)
	if err != nil {
		return []file{{name: path, err: err}}
	}
	if !info.IsDir() {
		return []file{{name: path, tree: tree}}
	}
	var found []file
	// The errors are kept with the names.
	_ = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			found = append(found, file{name: name, err: err})
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case slices.Contains(Extensions, filepath.Ext(name)) && isFile(tree, name, entry):
			below, _ := filepath.Rel(path, name) // which is below it
			isHidden := strings.Contains(string(filepath.Separator)+below, string(filepath.Separator)+".")
			found = append(found, file{name: name, tree: tree, hidden: isHidden})
		}
		return nil
	})
	if found == nil {
		found = []file{{name: path, err: fmt.Errorf("the folder has no file that ends in one of %q", Extensions)}}
	}
	return found
}

// isNoObject reports whether an item is a document of something else than Kubernetes.
func isNoObject(item Item) bool {
	if item.Fault == nil {
		return false
	}
	_, ok := errors.AsType[*NoObjectError](item.Fault)
	return ok
}

// isFile says whether an entry of a folder is a file, or a link to one.
func isFile(tree files.Tree, name string, entry fs.DirEntry) bool {
	if entry.Type().IsRegular() {
		return true
	}
	info, err := tree.Stat(name)
	return entry.Type()&fs.ModeSymlink != 0 && (err != nil || info.Mode().IsRegular())
}
