// Command example is fastadmit with a plugin of one's own.
package main

import (
	"os"

	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
	"github.com/fastadmit/fastadmit/handlers/example/creator"
)

func main() {
	os.Exit(app.Execute(app.NewCommand(app.WithPlugin(creator.Plugin()))))
}
