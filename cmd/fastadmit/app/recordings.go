package app

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

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

// writeRecordings writes the recordings in a folder as a tar. serve may remove some meanwhile.
func writeRecordings(w io.Writer, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot read recordings: %w", err)
	}
	archive := tar.NewWriter(w)
	extensions := []string{recording.AnswerExtension, recording.ReviewExtension}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !slices.Contains(extensions, filepath.Ext(entry.Name())) || entry.Name()[0] == '.' {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot read recordings: %w", err)
		}
		header := &tar.Header{Name: entry.Name(), Mode: 0o600, Size: int64(len(content)), Format: tar.FormatPAX}
		if info, err := entry.Info(); err == nil {
			header.ModTime = info.ModTime()
		}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("cannot write recordings: %w", err)
		}
		if _, err := archive.Write(content); err != nil {
			return fmt.Errorf("cannot write recordings: %w", err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("cannot write recordings: %w", err)
	}
	return nil
}
