package files

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// FolderFilesMax is the maximum number of files that ReadFolder reads: ten times the number
// of policies in a large cluster.
const FolderFilesMax = 10_000

// File is a file that was read.
type File struct {
	Name    string // with the folder
	Content []byte
}

// ReadFolder reads the files of a folder that have one of the extensions, sorted by name.
// extensions are in lower case and begin with a dot; the case of a file's extension does
// not matter. Subfolders are not read. It returns an error if a file cannot be read, if
// there are more than FolderFilesMax files, or if they have more than BytesMax bytes
// together.
func ReadFolder(dir string, extensions ...string) ([]File, error) {
	return Tree("").ReadFolder(dir, extensions...)
}

// ReadFolder is the function ReadFolder for a folder of the Tree.
func (t Tree) ReadFolder(dir string, extensions ...string) ([]File, error) {
	if t != "" {
		if _, err := t.Stat(dir); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []File
	left := int64(BytesMax)
	for _, entry := range entries {
		if entry.IsDir() || !slices.Contains(extensions, strings.ToLower(filepath.Ext(entry.Name()))) {
			continue
		}
		if len(all) == FolderFilesMax {
			return nil, fmt.Errorf("%s: got more than %d files, the maximum", dir, FolderFilesMax)
		}
		name := filepath.Join(dir, entry.Name())
		content, err := t.Read(name)
		if err != nil {
			return nil, err
		}
		if left -= int64(len(content)); left < 0 {
			return nil, fmt.Errorf("%s: got more than %d bytes in all files, the maximum", dir, BytesMax)
		}
		all = append(all, File{Name: name, Content: content})
	}
	return all, nil
}
