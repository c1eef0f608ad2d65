package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/printable"
	"github.com/fastadmit/fastadmit/internal/server"
	"github.com/fastadmit/fastadmit/internal/shadow"
)

const (
	// shadowAnswerMax is how long the command waits for the server.
	shadowAnswerMax = 10 * time.Second

	// shadowBytesMax is the longest answer that the command reads: several times as much as a server sends.
	shadowBytesMax = 16 << 20
)

func newShadowCommand() *cobra.Command {
	var address, output string
	cmd := &cobra.Command{
		Use:   "shadow",
		Short: "Print what the shadow of a running server would answer differently",
		Long: `Prints how the answers of the shadow differ from those that users got: shadow: in the configuration has
plugins, policies and settings to try. Differences are grouped by plugin, policy, namespace and resource,
with one example each, and begin anew when the configuration changes. Each replica has its own.

The server answers only callers on the same machine: kubectl exec, or kubectl port-forward.`,
		Example: "  kubectl exec deploy/fastadmit -- fastadmit shadow",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(shadowFormats, output) {
				return fmt.Errorf("--output: got %q, want one of %s", output, strings.Join(shadowFormats, ", "))
			}
			text, err := askShadow(cmd.Context(), address)
			if err == nil {
				err = printShadow(cmd.OutOrStdout(), output, text)
			}
			return failed(err)
		},
	}
	cmd.Flags().StringVar(&address, "metrics-address", "localhost:8080", "host and port of the server for metrics, see --metrics-bind-address of serve")
	cmd.Flags().StringVarP(&output, "output", "o", shadowFormats[0], "format: "+strings.Join(shadowFormats, ", "))
	completeValues(cmd, "output", shadowFormats...)
	return cmd
}

var shadowFormats = []string{"text", "json"}

// askShadow returns the page of a server.
func askShadow(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, shadowAnswerMax)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+server.ShadowPath, nil)
	if err != nil {
		return nil, fmt.Errorf("--metrics-address: got %q, want a host and a port, as localhost:8080: %w", address, err)
	}
	client := http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the server: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, shadowBytesMax))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read the answer of the server: %w", err)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the server at %s answered %s: %s", address, response.Status, strings.TrimSpace(string(text)))
	}
	return text, nil
}

// printShadow prints the page in a format.
func printShadow(w io.Writer, format string, text []byte) error {
	var all shadow.Report
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &all); err != nil {
		return fmt.Errorf("cannot read the answer of the server: %w", err)
	}
	if format == "json" {
		_, err := w.Write(text) // the server has escaped it
		return err
	}
	var b bytes.Buffer
	for i := range all.Differences {
		writeDifference(&b, &all.Differences[i])
	}
	fmt.Fprintf(&b, "since %s: %s, %d with another answer", all.Since.Format(time.RFC3339), report.Counted(int(all.Reviews), "review"), all.Differing)
	for _, reason := range slices.Sorted(maps.Keys(all.Skipped)) {
		fmt.Fprintf(&b, ", %d skipped (%s)", all.Skipped[reason], printable.Word(reason))
	}
	b.WriteString("\n")
	if all.Stopped != "" {
		fmt.Fprintf(&b, "the shadow has stopped: %s\n", printable.Word(all.Stopped))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// writeDifference writes a group of differences. Nothing that a user chose begins a line.
func writeDifference(b *bytes.Buffer, d *shadow.Difference) {
	fmt.Fprintf(b, "%s: %s, %s, last at %s\n", printable.Word(d.Where()), report.Counted(int(d.Reviews), "review"), printable.Word(d.Change()),
		d.Last.Format(time.RFC3339))
	e := &d.Example
	name := e.Name
	if e.Namespace != "" {
		name = e.Namespace + "/" + name
	}
	fmt.Fprintf(b, "    as %s %s by %s at %s, uid %s: %s\n", printable.Word(e.Operation), printable.Word(name), printable.Word(e.User),
		printable.Word(e.Endpoint), printable.Word(e.UID), strings.ReplaceAll(printable.Plain(e.About), "\n", "\n    "))
}
