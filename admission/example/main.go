// Command example is fastadmit with its own version and additional plugins.
package main

import (
	"os"

	"github.com/fastadmit/fastadmit/admission/example/creator"
	"github.com/fastadmit/fastadmit/admission/example/teamlabel"
	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
)

func main() {
	os.Exit(app.Execute(app.NewCommand(
		app.WithVersion("v0.1.0"),
		app.WithPlugin(creator.Plugin()),
		app.WithPlugin(teamlabel.Plugin()),
	)))
}
