"""Datagram links that repair themselves: the machine of one end of a link, joined in `link_repair`."""
