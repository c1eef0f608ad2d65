package files

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// FolderFilesMax is how many files of a folder ReadFolder reads: ten times as many
// as a large cluster has policies.
const FolderFilesMax = 10_000

// File is a file that was read.
type File struct {
	Name    string
	Content []byte
}

// ReadFolder reads the files of a folder whose names end with one of the
// extensions, whatever their case, sorted by name. It does not read folders below it.
// Files are bounded as those of Read are, and all together by BytesMax too.
func ReadFolder(dir string, extensions ...string) ([]File, error) {
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
			return nil, fmt.Errorf("%s: got more than %d files, want at most that", dir, FolderFilesMax)
		}
		name := filepath.Join(dir, entry.Name())
		content, err := Read(name)
		if err != nil {
			return nil, err
		}
		if left -= int64(len(content)); left < 0 {
			return nil, fmt.Errorf("%s: got more than %d bytes in all files, want at most that", dir, BytesMax)
		}
		all = append(all, File{Name: name, Content: content})
	}
	return all, nil
}
