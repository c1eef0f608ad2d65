// Package alike suggests known names for a misspelled one.
package alike

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const (
	// distanceMax is the maximum number of wrong letters.
	distanceMax = 3
	// namesMax is the maximum number of suggested names.
	namesMax = 3
)

// Hint returns a suggestion of up to three known names that are similar to name, such as
// ", did you mean a or b?". It returns "" if there are none.
func Hint(name string, known []string) string {
	// cobra suggests names of subcommands by itself.
	command := &cobra.Command{SuggestionsMinimumDistance: distanceMax}
	length := len(strings.ToLower(name)) // cobra compares names in lower case
	for _, k := range known {
		if length > len(strings.ToLower(k))+distanceMax {
			continue // its distance is at least this; to compare a long name takes time for each of its letters and of the known one's
		}
		command.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	names := command.SuggestionsFor(name)
	if i := slices.IndexFunc(names, func(k string) bool { return strings.EqualFold(k, name) }); i >= 0 {
		names = names[i : i+1]
	}
	if len(names) == 0 || name == "" {
		return ""
	}
	return ", did you mean " + strings.Join(names[:min(len(names), namesMax)], " or ") + "?"
}
