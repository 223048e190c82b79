"""Runs the installed mtprotoproxy before a fake DC: launch.py CONFIG, where CONFIG also sets DC_ADDR and DC_PORT.

It asks nobody for this machine's address, since init_ip_info is not called; without AD_TAG it fetches nothing either.
"""
import asyncio
import sys
import sysconfig

sys.path.insert(0, sysconfig.get_path("scripts"))  # the package is a script
import mtprotoproxy

mtprotoproxy.init_config()
mtprotoproxy.TG_DATACENTERS_V4 = [mtprotoproxy.config.DC_ADDR] * 5
mtprotoproxy.TG_DATACENTER_PORT = mtprotoproxy.config.DC_PORT

# The package is of 2019. Since then uvloop has ceased to make an event loop for who asks for one, asyncio has given up a
# name and an argument; the latter is dropped, and the queue of new connections made as long as the other relays'.
mtprotoproxy.try_setup_uvloop()
mtprotoproxy.try_setup_uvloop = lambda: None
asyncio.set_event_loop(asyncio.new_event_loop())
asyncio.streams.IncompleteReadError = asyncio.IncompleteReadError
start_server = asyncio.start_server
asyncio.start_server = lambda *args, loop, **more: start_server(*args, backlog=4096, **more)

mtprotoproxy.main()
