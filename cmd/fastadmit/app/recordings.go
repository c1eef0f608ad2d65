package app

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fastadmit/fastadmit/internal/recording"
)

func newRecordingsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "recordings [FOLDER]",
		Short: "Write the reviews that serve recorded to standard output, as a tar",
		Long: `Writes the recordings in a folder, the --record-dir of serve, to standard output as a tar archive, the
oldest first. fastadmit replay reads it. Without an argument, the folder is ` + recording.DefaultDir + `,
that of the chart.`,
		Example: "  kubectl exec deploy/fastadmit -- fastadmit recordings > recordings.tar",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := recording.DefaultDir
			if len(args) > 0 {
				dir = args[0]
			}
			if file, ok := cmd.OutOrStdout().(*os.File); ok && term.IsTerminal(int(file.Fd())) {
				return errors.New("standard output is a terminal; redirect it into a file")
			}
			return failed(writeRecordings(cmd.OutOrStdout(), dir))
		},
	}
}

// writeRecordings writes the recordings in a folder as a tar, each answer before its review. serve may add
// and remove some meanwhile. It writes the answer first, and a folder that is being written to may be listed
// without it: so it is asked for by its name.
func writeRecordings(w io.Writer, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot read recordings: %w", err)
	}
	archive := tar.NewWriter(w)
	for _, entry := range entries {
		base, isReview := strings.CutSuffix(entry.Name(), recording.ReviewExtension)
		if !isReview || entry.Name()[0] == '.' || !entry.Type().IsRegular() {
			continue
		}
		err := addFile(archive, filepath.Join(dir, base+recording.AnswerExtension))
		if err == nil {
			err = addFile(archive, filepath.Join(dir, entry.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("cannot write recordings: %w", err)
	}
	return nil
}

// addFile adds a file to an archive. The error is fs.ErrNotExist for what is no regular file, too.
func addFile(archive *tar.Writer, path string) error {
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() {
		return fs.ErrNotExist
	}
	var content []byte
	if err == nil {
		content, err = os.ReadFile(path)
	}
	if err != nil {
		return fmt.Errorf("cannot read recordings: %w", err)
	}
	header := &tar.Header{
		Name: filepath.Base(path), Mode: 0o600, Size: int64(len(content)), ModTime: info.ModTime(), Format: tar.FormatPAX,
	}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("cannot write recordings: %w", err)
	}
	if _, err := archive.Write(content); err != nil {
		return fmt.Errorf("cannot write recordings: %w", err)
	}
	return nil
}
