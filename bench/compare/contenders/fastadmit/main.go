// Command fastadmit is the contender that the others are compared with: the command fastadmit with
// one more plugin.
package main

import (
	"os"

	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
)

func main() {
	os.Exit(app.Execute(app.NewCommand(app.WithPlugin(privilegedContainers()))))
}
