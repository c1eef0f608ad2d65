// Command fastadmit is the contender that the others are compared with: the
// command of fastadmit, with the plugin that its table does not have.
package main

import (
	"os"

	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
)

func main() {
	os.Exit(app.Execute(app.NewCommand(app.WithPlugin(privilegedContainers()))))
}
