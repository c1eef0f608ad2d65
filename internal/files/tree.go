package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Tree is a folder. Its methods read files in the folder and its subfolders. They return an
// error for a path or a symbolic link that leads out of the folder. Links in it must be
// relative. The empty Tree has all files.
type Tree string

// Everywhere returns the Tree that has all files.
func Everywhere(string) Tree { return "" }

// TreeOf returns the Tree for a path that a user names: the folder. For a file, it returns the
// Tree that has all files: the user trusts this file.
func TreeOf(path string) Tree {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return Tree(path)
	}
	return ""
}

// Read is the function Read for the files of the Tree.
func (t Tree) Read(name string) ([]byte, error) { return t.ReadAtMost(name, BytesMax) }

// Stat is os.Stat for the files of the Tree.
func (t Tree) Stat(name string) (info fs.FileInfo, err error) {
	if t == "" {
		return os.Stat(name)
	}
	err = t.in(name, func(root *os.Root, below string) (err error) {
		info, err = root.Stat(below)
		return err
	})
	return info, err
}

// CheckLinks returns an error if symbolic links among the entries of the folder lead out of
// it.
func (t Tree) CheckLinks() error {
	if t == "" {
		return nil
	}
	entries, err := os.ReadDir(string(t))
	for _, entry := range entries {
		if entry.Type()&fs.ModeSymlink != 0 {
			_, fault := t.Stat(filepath.Join(string(t), entry.Name()))
			err = errors.Join(err, fault)
		}
	}
	return err
}

// openFile is os.OpenFile for the files of the Tree.
func (t Tree) openFile(name string, flag int) (f *os.File, err error) {
	if t == "" {
		return os.OpenFile(name, flag, 0)
	}
	err = t.in(name, func(root *os.Root, below string) (err error) {
		f, err = root.OpenFile(below, flag, 0)
		return err
	})
	return f, err
}

// in calls do with the folder and the path of a file relative to it. Errors name the file as
// the caller does.
func (t Tree) in(name string, do func(root *os.Root, below string) error) error {
	dir, err := filepath.Abs(string(t))
	if err != nil {
		return err
	}
	file, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	below, err := filepath.Rel(dir, file)
	if err != nil || !filepath.IsLocal(below) {
		return t.outside(name)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written
	err = do(root, below)
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		if strings.HasSuffix(path.Err.Error(), "path escapes from parent") { // of package os, which does not export it
			return t.outside(name)
		}
		return &fs.PathError{Op: strings.TrimSuffix(path.Op, "at"), Path: name, Err: path.Err} // openat, statat
	}
	return err
}

func (t Tree) outside(name string) error {
	return &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf(
		"the path, or a symbolic link in it, leads out of the folder %q; want a file in this folder, and relative links; "+
			"--allow-files-outside allows others", string(t))}
}
