package twins

import (
	"slices"
	"testing"

	"github.com/fastadmit/fastadmit/e2e/tables"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/plugins"
)

const ownersPlugin = "OwnerReferencesPermissionEnforcement"

// TestOwners is TestTwins for a plugin that is about permissions: users have
// those that rbac.yaml gives.
func TestOwners(t *testing.T) {
	tw := startWith(t, map[string]string{"authorization-mode": "RBAC"})
	rbac, err := tables.Read("../testdata/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range tw.off {
		for _, c := range rbac {
			if err := create(s, c.New()); err != nil {
				t.Fatal(err)
			}
		}
	}
	table := plugins.InTree(plugins.DefaultOptions())
	own := slices.IndexFunc(table, func(p handlers.Plugin) bool { return p.Name == ownersPlugin })
	row := tally.Row{Plugin: ownersPlugin, Test: "twins"}
	tw.tables(t, table[own], &row)
	mustWrite(t, row)
}
