// Command fastadmit is the contender that the others are compared with: the
// command of fastadmit, with the plugins that its table does not have.
package main

import (
	"os"

	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
)

func main() {
	var options []app.Option
	for _, plugin := range plugins() {
		options = append(options, app.WithPlugin(plugin))
	}
	os.Exit(app.Execute(app.NewCommand(options...)))
}
