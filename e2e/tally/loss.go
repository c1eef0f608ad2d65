package tally

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// Loss is the result of a stream of requests during an event.
type Loss struct {
	Event    string
	Requests int
	// Lost is the number of requests that got an error other than the denial they had to get.
	// LostMax is how many of these are allowed.
	Lost, LostMax int
	// MutationsMissed is the number of objects stored without their mutation, ValidationsMissed
	// that of objects that should have been denied.
	MutationsMissed, ValidationsMissed int
	// Unanswered is the number of requests without an answer from an API server that is ready.
	Unanswered int
	// Half of the answers took Median or less, 99 in 100 P99 or less.
	Median, P99 time.Duration
	Skipped     string // why it was skipped, empty if it was not
}

// lossDir is the folder of these rows, in Dir.
const lossDir = "loss"

// Write keeps the row for that place in the table.
func (l Loss) Write(place int) error {
	dir := os.Getenv(Dir)
	if dir == "" {
		return nil
	}
	dir = filepath.Join(dir, lossDir)
	content, err := json.Marshal(l)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.json", place)), content, 0o644)
}

// ReadLosses returns all rows in dir.
func ReadLosses(dir string) ([]Loss, error) {
	return read[Loss](filepath.Join(dir, lossDir))
}

// LossTable returns the rows as a table.
func LossTable(rows []Loss) string {
	var text, skipped strings.Builder
	t := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "EVENT\tREQUESTS\tLOST\tMAY BE LOST\tMUTATIONS MISSED\tVALIDATIONS MISSED\tNO API SERVER\tMEDIAN MS\tP99 MS")
	for _, r := range rows {
		if r.Skipped != "" {
			fmt.Fprintf(&skipped, "%s: skipped: %s\n", r.Event, r.Skipped)
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", r.Event, r.Requests, r.Lost, r.LostMax,
			r.MutationsMissed, r.ValidationsMissed, r.Unanswered, r.Median.Milliseconds(), r.P99.Milliseconds())
	}
	_ = t.Flush() // a strings.Builder does not fail
	return text.String() + skipped.String()
}
